package bench

// CompareResult is what `bench compare` has measured. The names of its fields in JSON
// are stable.
type CompareResult struct {
	Services  int            `json:"services"`
	Endpoints int            `json:"endpoints"`
	Shape     Shape          `json:"shape"`
	Seed      uint64         `json:"seed"`
	Proxies   []*ProxyResult `json:"proxies"`
	Machine   Machine        `json:"machine"`
}

// ProxyResult is what was measured of one proxy, from outside.
type ProxyResult struct {
	Services  int    `json:"services"`
	Endpoints int    `json:"endpoints"`
	Name      string `json:"name"`
	Command   string `json:"command"`
	// FirstSync is from the start of the process to the first connection through a
	// ClusterIP that was answered.
	FirstSync    float64 `json:"first_sync_seconds"`
	FirstSyncCPU float64 `json:"first_sync_cpu_seconds"` // until it was idle after that
	// CPU is user and kernel time for all changes, of the process and of those that it
	// started and that have ended.
	CPU       float64 `json:"cpu_seconds"`
	CPUUser   float64 `json:"cpu_user_seconds"`
	CPUKernel float64 `json:"cpu_kernel_seconds"`
	// RSS is the resident memory after the changes, as the process left it.
	RSS int `json:"rss_bytes"`
	// NFTables is from the changed object in the API server to the kernel's next
	// generation of nftables; its count is 0 if the proxy uses none, or has another mode.
	NFTables Latencies `json:"nftables"`
	// Packet is from the changed object in the API server to the first connection that the
	// new endpoint answers.
	Packet  Latencies `json:"packet"`
	Machine Machine   `json:"machine"`
}

// Latencies are those of all changes, in microseconds.
type Latencies struct {
	Count int       `json:"count"`
	P50   float64   `json:"p50_us"`
	P90   float64   `json:"p90_us"`
	P99   float64   `json:"p99_us"`
	Max   float64   `json:"max_us"`
	All   []float64 `json:"all_us"` // sorted
}

package bench

// UpdateResult is what `bench update` has measured. The names of its fields in JSON are
// stable.
type UpdateResult struct {
	Services  int    `json:"services"`  // at the beginning
	Endpoints int    `json:"endpoints"` // at the beginning; a dual-stack one counts once
	Shape     Shape  `json:"shape"`
	Seed      uint64 `json:"seed"`
	Families  int    `json:"families"` // IP families of the node

	// FirstSync is from the first object to the kernel's last answer, all objects being
	// there at once, already converted.
	FirstSync           float64 `json:"first_sync_seconds"`
	FirstSyncPerService float64 `json:"first_sync_per_service_us"`
	FirstSyncCPU        float64 `json:"first_sync_cpu_seconds"` // user and kernel
	FirstSyncOperations int     `json:"first_sync_operations"`
	FirstSyncBytes      int     `json:"first_sync_bytes"`
	FirstSyncBatches    int     `json:"first_sync_batches"`

	// RSS is the resident memory of the whole process after the changes, without garbage.
	// RSSEmpty is the same before the cluster was there: the program itself.
	RSS      int `json:"rss_bytes"`
	RSSEmpty int `json:"rss_empty_bytes"`
	// Heap is the heap in use after the first sync and a garbage collection, HeapEmpty the
	// same before the cluster was there. HeapPerService is the difference by Service.
	Heap           int `json:"heap_bytes"`
	HeapEmpty      int `json:"heap_empty_bytes"`
	HeapPerService int `json:"heap_per_service_bytes"`

	// Elapsed and CPU are of all changes together, without the time in which they were
	// made up.
	Elapsed   float64 `json:"changes_seconds"`
	CPU       float64 `json:"cpu_seconds"` // user and kernel
	CPUUser   float64 `json:"cpu_user_seconds"`
	CPUKernel float64 `json:"cpu_kernel_seconds"`
	// CPUPerThousand is CPU for 1,000 changes, CoreShare the share of one core that CPU is
	// of Elapsed: more than 1 if two were busy.
	CPUPerThousand float64 `json:"cpu_seconds_per_1000_changes"`
	CoreShare      float64 `json:"core_share"`
	// Rate is the number of changes a second that was asked for, 0 for as many as
	// possible; Reached is the one that was reached, until the kernel had the last change.
	Rate    float64 `json:"rate"`
	Reached float64 `json:"rate_reached"`
	// KeptUp says that at least 99 % of Rate was reached.
	KeptUp bool `json:"kept_up"`
	// Syncs is how many syncs the changes took: at a rate several may share one.
	Syncs int `json:"syncs"`

	Changes map[Kind]ChangeResult `json:"changes"`
	Machine Machine               `json:"machine"`

	samples map[Kind][]sample // for the plots
}

// ChangeResult is what was measured of the changes of one kind. Latencies are in
// microseconds, from the changed object to the kernel's answer.
type ChangeResult struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
	Max   float64 `json:"max_us"`
	// Operations are those of the sync that took the change: elements, of which Verdicts
	// carry a verdict, and objects.
	OperationsP50 int `json:"operations_p50"`
	OperationsMax int `json:"operations_max"`
	VerdictsP50   int `json:"verdicts_p50"`
	// Bytes are those of its netlink messages, an upper estimate.
	BytesP50 int `json:"bytes_p50"`
	BytesMax int `json:"bytes_max"`
}

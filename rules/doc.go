// Package rules is the vocabulary of the ruleset and its compiler: service ports,
// resolved for this node, become the sets, maps, elements and chains that the
// kernel should hold.
//
// Its promise is: values in, values out. There is no socket, clock, logger or
// goroutine in it, no variable outlives a call, and equal inputs give byte-equal
// output, in whatever order frontends, endpoints and service ports are listed.
// TestPackageIsPure keeps it.
//
//	ServicePort --Compile------> Compiled --NewRuleset--> Ruleset --> WriteText, WriteJSON
//	    prev ------^             ^     \--AppendElements--> []Element --> EncodeElements
//	Node ---------CompileNode---/
//	Delta -----SlotIndex.Apply--/   of one before, for service ports of very many endpoints
//
// # The path of a packet
//
// There is one table for each family, "ip nftproxy" and "ip6 nftproxy", with the
// same sets and chains. Only the first packet of a connection passes the nat
// chains; conntrack translates the others.
//
//	from the network                             from this node
//	       |                                           |
//	filter-prerouting-pre-dnat -110             filter-output-pre-dnat -110
//	       |  new, in @firewalled, source not in       |
//	       |  @allowed-sources: drop                   |
//	       |                                           |
//	nat-prerouting -100                         nat-output -100
//	       |                                           |
//	       +----------------> services <---------------+
//	                             |
//	 neither from this node nor from a pod, in @local-service-ips:
//	   goto local-random-<capacity>, which draws from @local-endpoints
//	                             |
//	 to @cluster-ips from outside the cluster, to @masquerade-ips, or from this
//	 node to @masquerade-node-ips: set the masquerade mark
//	                             |
//	  address . protocol . port in @service-ips: goto random-<capacity>
//	                             |
//	  to an address in @nodeport-ips: the same four steps by protocol . port alone,
//	  in @local-service-nodeports, @masquerade-nodeports, @masquerade-node-nodeports
//	  and @service-nodeports
//	                             |
//	                      random-<capacity>
//	                             |
//	  jump draw-random-<capacity>, a number of times:
//	    address . protocol . port . random slot in @endpoints: dnat, done
//	    (an empty slot does not match: draw again; at last, take slot 0)
//	                             |
//	       +---------------------+---------------------+
//	       |                     |                     |
//	filter-input 0        filter-forward 0      filter-output 0
//	new, NodePort in      new, in               new, in
//	@no-endpoints-*-      @no-endpoints-        @no-endpoints-
//	nodeports:            reject: reject        reject: reject
//	reject or drop        @no-endpoints-        @no-endpoints-
//	new, in               drop: drop            drop: drop
//	@no-endpoints-        new, still to         new, still to
//	reject: reject        @cluster-ips:         @cluster-ips:
//	@no-endpoints-        reject, no Service    reject, no Service
//	drop: drop            has that port         has that port
//	       |              to @service-cidrs:    to @service-cidrs:
//	       |              drop, no Service      drop, no Service
//	       |              has that address      has that address
//	       |                     |                     |
//	a local process              +----------+----------+
//	                                        |
//	                             nat-postrouting 100
//	                                        |
//	                                  masquerading
//	                                        |
//	                  marked: clear the mark, masquerade
//	                  from an endpoint back to itself, in @hairpin: masquerade
//
// The hooks and priorities of the base chains are those that other software on a
// node expects of kube-proxy. The number of sets and base chains is constant (but for
// affinity, see there): whatever depends on Services or on the node is an element. The kernel looks a set up by walking
// a list of names for every element message, so a set for each Service would make
// every update slower as the cluster grows.
//
// # Traffic policies
//
// A service port has up to two slot tables: one of the endpoints for traffic policy
// Cluster, one of those on this node for policy Local. A ClusterIP draws from the one
// that its policy names. An external frontend of policy Local has both: clients that
// are neither this node nor one of its pods draw from the endpoints on this node and
// keep their address, the others from all of them. Where no endpoint is on this node,
// local-random-0, an empty chain, ends the search, and the packet is dropped untranslated.
//
// # NodePorts
//
// A NodePort is open on addresses of the node, which come and go. So its maps have keys
// without an address, and what says the addresses comes before them: the set
// nodeport-ips, or where every address counts `fib daddr type local`. Each map and set
// of frontends has such a twin, in the same order.
//
// # Session affinity
//
// A service port with affinity has a map of its own that remembers its clients, for
// each policy that it uses, and a chain for each endpoint. It is the one exception to
// the constant number of sets, and to the rule that slots carry no verdicts:
//
//	map affinity-<digest>   { 192.0.2.200 timeout 3h : 10.244.1.10 . 8080 }
//	map affinity-endpoints  { 10.96.0.10 . tcp . 80 . 0 : goto endpoint-<digest> }
//
//	chain endpoint-<digest> {
//	  update @affinity-<digest> { ip saddr timeout 3h : 10.244.1.10 . 8080 }
//	  meta l4proto tcp dnat ip to ip saddr map @affinity-<digest>
//	  meta l4proto tcp dnat to 10.244.1.10:8080
//	}
//
// A slot is drawn every time, but update leaves a client that is known with its
// endpoint and only begins its timeout anew: the cost does not depend on the number of
// endpoints, and nobody has to look a client up before. All frontends of a service port
// share the map, so that a client is at home behind each of them. Policy Local has one
// of its own: what it remembers is on this node. The last rule serves when the map is
// full. Digests depend on names only, so that what is remembered outlives a restart;
// entries that lead to endpoints which are gone are for the owner of the ruleset to
// delete (AffinityTable).
//
// # Slots
//
// Each service port has a table of slots, Compiled.Slots; a slot holds one
// endpoint or is empty. The elements of the map "endpoints" are the filled slots,
// once for each frontend:
//
//	service-ips: 10.96.0.10 . tcp . 80     : goto random-4
//	endpoints:   10.96.0.10 . tcp . 80 . 0 : 10.244.1.10 . 8080
//	             10.96.0.10 . tcp . 80 . 1 : 10.244.2.11 . 8080
//	             10.96.0.10 . tcp . 80 . 3 : 10.244.3.12 . 8080     slot 2 is empty
//
// A chain that draws until it hits a filled slot chooses evenly among them, holes
// or not. So an endpoint keeps its slot for life, one that goes leaves a hole, and
// nothing else moves. A newcomer takes the slot of an endpoint that goes in the
// same change; otherwise it takes a hole. Slot 0 is the last resort after all
// draws, so it is filled as long as any is: if its endpoint goes without a
// successor, the last filled slot moves there.
//
// # Capacities
//
// The capacity of a table is one of a ladder, four steps a doubling:
//
//	1 2 3 4 5 6 7 8 10 12 14 16 20 24 28 32 40 48 56 64 80 96 112 128 ...
//
// so that a cluster needs few chains (60 up to 65,536 slots, made when first
// needed) and a fresh table is more than 80 % full. A new capacity sends every
// frontend to another chain, and an element with a verdict is dear: the kernel
// then validates the table again and walks the elements of every verdict map
// (with 10,000 Services about 1 ms in place of 11 µs, with 100,000 it is 16 ms).
// Therefore a table grows only when its slots do not fit any more, and shrinks
// only when less than 48 % of it are filled. 48 % is what a rolling update needs
// that goes a quarter over a Deployment's size and a quarter under it: 3/4 of 4/5
// of 4/5. With one half, Services of 52 or 103 endpoints would go from one
// capacity to another and back at every update.
//
// The same 48 % bound how often a draw misses: a connection takes 1/0.48 = 2.1
// draws in the mean at worst, and at most 1.25 while a table is fresh. A chain draws so often (13
// times for capacity 8, 21 for 1,024) that the last resort gives slot 0 less than
// 0.1 % above its share and takes less than 0.1 % of theirs from the others.
//
// # Very many endpoints
//
// A service port may have 100,000 endpoints, and one of them changes. So a slot table is in
// parts that are never changed: the next table shares those in which nothing differs, and
// what is in shared parts need not be compared (AppendDiffering). A SlotIndex applies a
// Delta, the few endpoints that come and go, to the table that there is, by the rules above
// (TestDeltaIsCompile): it knows each endpoint's slot, and which slots are empty. Only
// another capacity makes it look at all endpoints.
//
// # Weights
//
// A weight is a number of slots. Weights are divided by their greatest common
// divisor, and if they add up to 256 slots or fewer, that is it: the shares are
// exact. Otherwise they are scaled down as far as every endpoint's share stays
// within 5 % (MaxShareError) of the exact one, relative to it; see slotCounts for
// what happens if Config.MaxSlots does not allow for that. Endpoints of weight 0
// are backups, used only while no other endpoint is there. A new weight may change
// the divisor, and with it the slots of other endpoints; equal weights are one
// slot each, always.
//
// # What a change costs
//
// In elements sent to the kernel, for a service port with F frontends (addresses
// with a port); one whose value differs is deleted and added. TestCostOfAChange
// and the properties of the slot tables in the tests hold these figures.
//
//	change                                   added        deleted      with verdict
//	an endpoint comes                        F            -            -
//	an endpoint goes                         -            F            -
//	  ... that is in slot 0                  F            2F           -
//	k endpoints replace k others             kF           kF           -
//	a weight grows by k slots                kF           -            -
//	the capacity changes, in addition        F            F            F
//	  ... a slot beyond the new one moves    F            F            -
//	the first endpoint comes                 2F           F            F
//	the last endpoint goes                   F            2F           -
//	an endpoint is on this node now          1            -            -
//	a frontend comes, n slots are filled     n+1 (and     -            1
//	                                         1 a new address)
//
// A NodePort is a frontend like any other, whatever the number of addresses that it is
// open on. A local endpoint that comes or goes is one element of "hairpin" more, and one
// for each external frontend of policy Local. An external frontend of policy Cluster is
// one element more, of what is masqueraded, when it comes or goes and with its first
// and last endpoint. While the capacity stays, these are the fewest that any assignment
// could do with: each slot that an endpoint loses or gains is one operation for each
// frontend.
//
// With session affinity every element of a slot carries a verdict, so that the kernel
// validates the table at each change of an endpoint, and chains and maps come and go
// (TestOperationCounts in package syncer):
//
//	change, with k endpoints in n slots      elements     with verdict objects
//	an endpoint comes                        F            F            4: its chain, 3 rules
//	an endpoint goes                         F            F            2
//	an endpoint replaces another             2F           2F           6
//	the timeout changes                      -            -            4k
//	affinity is switched on                  F(2n+2)      F(n+2)       4k+1: and the map
//	affinity is switched off                 F(2n+2)      F(n+2)       2k+1
//
// Policy Local, where it is in use, has a map and chains of its own: both count twice.
//
// The node's elements cost what they are, whatever the number of Services:
//
//	an address for NodePorts comes or goes   1
//	a ServiceCIDR comes or goes              1, if no other contains it
//	the same again, in any order             nothing, not even a batch
//	another Config                           everything is written
//
// # Three ways to say the same
//
// text.go says a value in nft syntax, json.go in nft's JSON, encode.go in netlink
// messages. Text, JSON and netlink messages of the same value are tested to list
// the same (TestTextEqualsEncoding), with nft 1.0.6 and later in mind: only
// expressions that its language can say are used, since a listing of others makes
// it abort. Comments are cut to 128 bytes, and names that could end a comment's
// quotes are refused by Validate.
//
// In one place the text differs from what the kernel holds. nft has no name for
// the type of a slot number, a plain integer in the host's byte order, so the text
// declares the map with an expression in place of types:
//
//	typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport
//
// (any modulus would do). The kernel keeps no types, only numbers for whoever
// lists a set, and typeof is kept in a form that is private to nft. The netlink
// messages therefore name the type "mark", which is the one that is 32 bits in the
// host's byte order too. Such a map lists as "type ipv4_addr . inet_proto .
// inet_service . mark : ipv4_addr . inet_service" with slots such as 0x00000003;
// lookups are the same.
//
// # Walking a packet
//
// A Walker evaluates the rules without a kernel: for a packet it says to which
// endpoints it may be translated and how likely, whether it is masqueraded, rejected,
// dropped or left alone, and which rules matched. It goes through the statements of the
// chains as they are, hook by hook and by priority:
//
//	from the network, to this node    prerouting, input
//	from the network, to elsewhere    prerouting, forward, postrouting
//	from this node                    output, postrouting
//	  ... to itself, in addition      prerouting, input
//
// where it is to is asked after the translation. A random draw has all its results, with
// their probabilities; where two ways meet again they are one.
//
// The walk is how the rules are held to what they are for. semantics_test.go says what
// Kubernetes wants of a packet, from service ports and without a rule;
// TestWalkAgreesWithSemantics compares both for random clusters, TestWalkAgreesWithKernel
// sends real packets, and TestEveryStatementMatters leaves out one statement after the
// other and wants the difference to be seen.
package rules

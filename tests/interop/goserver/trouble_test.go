package main

import (
	"testing"
	"time"
)

// faults are what may happen to a cluster while its pods take devices from each other.
var faults = []struct {
	name  string
	brief bool     // part of every run; the others are for ALLOT_INTEROP_LONG=1
	flags []string // of the server
	pairs int      // of scheduler and controllers, 1 if not set
	elect bool     // a pair that is alone elects itself, too
	does  func(*cluster)
}{
	{name: "NothingHappens", brief: true},
	// Older servers do not begin watches with what is there.
	{name: "WithoutStreamedLists", flags: []string{"-feature-gates", "WatchList=false"}},
	// The server that comes back knows no older versions than its own first list: watches begin anew.
	{name: "ServerDies", brief: true, flags: []string{"-compaction", "1s"}, does: func(c *cluster) {
		for range 3 {
			c.server.restart(500 * time.Millisecond)
			time.Sleep(3 * time.Second)
		}
	}},
	{name: "EtcdDies", does: func(c *cluster) {
		for range 2 {
			c.etcd.restart(2 * time.Second)
			time.Sleep(3 * time.Second)
		}
	}},
	// With an election the next scheduler waits until the lease of the dead one ends. Without, and started at once, it
	// may give devices away that the last requests of the dead one, still under way in the server, give away as well.
	{name: "ComponentsDie", brief: true, elect: true, does: func(c *cluster) {
		for range 2 {
			c.schedulers[0].restart(0)
			time.Sleep(700 * time.Millisecond)
			c.controllers[0].restart(0)
			time.Sleep(6 * time.Second)
		}
	}},
	{name: "LeadersDie", pairs: 2, does: func(c *cluster) {
		for i := range 2 {
			c.schedulers[i].kill()
			c.controllers[i].restart(2 * time.Second)
			c.schedulers[i].start()
		}
	}},
	// A leader that slept too long must not write what it had in mind.
	{name: "LeaderSleeps", pairs: 2, does: func(c *cluster) {
		for i := range 2 {
			c.schedulers[i].freeze(8 * time.Second)
		}
	}},
	// More requests at once than the server takes: it answers 429.
	{name: "ServerIsBusy", flags: []string{"-max-in-flight", "3"}},
	{name: "ServerIsSlow", does: func(c *cluster) {
		for range 4 {
			c.server.freeze(2 * time.Second)
			time.Sleep(300 * time.Millisecond)
		}
	}},
	// Tokens that are not valid for a while: 401.
	{name: "TokensExpire", does: func(c *cluster) {
		restore := c.expireTokens()
		time.Sleep(4 * time.Second)
		restore()
	}},
}

func TestTrouble(t *testing.T) {
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			if testing.Short() && !fault.brief {
				t.Skip("not in short runs")
			}
			c := newCluster(t, fault.flags...)
			c.elect = fault.elect
			c.run(max(1, fault.pairs))
			c.under(func() {
				if fault.does != nil {
					fault.does(c)
				}
			})
		})
	}
}

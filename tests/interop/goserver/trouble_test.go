package main

import (
	"testing"
	"time"
)

// long marks what `run` leaves out without ALLOT_INTEROP_LONG=1.
func long(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short runs")
	}
}

func TestNothingHappens(t *testing.T) {
	c := newCluster(t)
	c.run(1)
	c.under(func() {})
}

// Older servers do not begin watches with what is there.
func TestWithoutStreamedLists(t *testing.T) {
	long(t)
	c := newCluster(t, "-feature-gates", "WatchList=false")
	c.run(1)
	c.under(func() {})
}

// The server that comes back knows no older versions than its own first list: watches begin anew.
func TestServerDies(t *testing.T) {
	c := newCluster(t, "-compaction", "1s")
	c.run(1)
	c.under(func() {
		for range 3 {
			c.server.kill()
			time.Sleep(500 * time.Millisecond)
			c.server.start()
			time.Sleep(3 * time.Second)
		}
	})
}

func TestEtcdDies(t *testing.T) {
	long(t)
	c := newCluster(t)
	c.run(1)
	c.under(func() {
		for range 2 {
			c.etcd.kill()
			time.Sleep(2 * time.Second)
			c.etcd.start()
			time.Sleep(3 * time.Second)
		}
	})
}

// With an election the next scheduler waits until the lease of the dead one ends. Without, and started at once, it may
// give devices away that the last requests of the dead one, still under way in the server, give away as well.
func TestComponentsDie(t *testing.T) {
	c := newCluster(t)
	c.elect = true
	c.run(1)
	c.under(func() {
		for range 2 {
			c.schedulers[0].kill()
			c.schedulers[0].start()
			time.Sleep(700 * time.Millisecond)
			c.controllers[0].kill()
			c.controllers[0].start()
			time.Sleep(6 * time.Second)
		}
	})
}

func TestLeadersDie(t *testing.T) {
	long(t)
	c := newCluster(t)
	c.run(2)
	c.under(func() {
		for i := range 2 {
			c.schedulers[i].kill()
			c.controllers[i].kill()
			time.Sleep(2 * time.Second)
			c.schedulers[i].start()
			c.controllers[i].start()
		}
	})
}

// A leader that slept too long must not write what it had in mind.
func TestLeaderSleeps(t *testing.T) {
	long(t)
	c := newCluster(t)
	c.run(2)
	c.under(func() {
		for i := range 2 {
			c.schedulers[i].freeze(8 * time.Second)
		}
	})
}

// More requests at once than the server takes: it answers 429.
func TestServerIsBusy(t *testing.T) {
	long(t)
	c := newCluster(t, "-max-in-flight", "3")
	c.run(1)
	c.under(func() {})
}

func TestServerIsSlow(t *testing.T) {
	long(t)
	c := newCluster(t)
	c.run(1)
	c.under(func() {
		for range 4 {
			c.server.freeze(2 * time.Second)
			time.Sleep(300 * time.Millisecond)
		}
	})
}

// Tokens that are not valid for a while: 401.
func TestTokensExpire(t *testing.T) {
	long(t)
	c := newCluster(t)
	c.run(1)
	c.under(func() {
		restore := c.expireTokens()
		time.Sleep(4 * time.Second)
		restore()
	})
}

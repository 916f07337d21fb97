package interop

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// mirror is what an informer told: the names it knows, and a signal for every change.
type mirror struct {
	mutex   sync.Mutex
	names   map[string]string
	changed chan struct{}
}

func newMirror() *mirror {
	return &mirror{names: map[string]string{}, changed: make(chan struct{}, 1)}
}

func (m *mirror) set(object any, present bool) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	meta := object.(metav1.Object)
	m.mutex.Lock()
	if present {
		m.names[meta.GetName()] = meta.GetResourceVersion()
	} else {
		delete(m.names, meta.GetName())
	}
	m.mutex.Unlock()
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *mirror) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { m.set(object, true) },
		UpdateFunc: func(_, object any) { m.set(object, true) },
		DeleteFunc: func(object any) { m.set(object, false) },
	}
}

// until waits until the mirror shows what it should.
func (m *mirror) until(t *testing.T, what string, condition func(names map[string]string) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		m.mutex.Lock()
		done := condition(m.names)
		m.mutex.Unlock()
		if done {
			return
		}
		select {
		case <-m.changed:
		case <-deadline:
			t.Fatalf("waiting for %s: %v", what, m.names)
		}
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mirror": "yes"}}}
}

// The reflector streams its first list where the server can (WatchList), and lists where a test or an old client
// makes it.
func TestInformers(t *testing.T) {
	for _, mode := range []string{"watch-list", "list"} {
		t.Run(mode, func(t *testing.T) {
			ns := namespace(t, shared)
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			maps := shared.client.CoreV1().ConfigMaps(ns)
			for i := range 5 {
				_, err := maps.Create(ctx, configMap(fmt.Sprint("before-", i)), metav1.CreateOptions{})
				must(t, err)
			}
			seen := newMirror()
			source := &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
					if mode == "watch-list" {
						t.Error("the informer listed although the server streams lists")
					}
					return maps.List(ctx, options)
				},
				WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
					return maps.Watch(ctx, options)
				},
			}
			var lister cache.ListerWatcher = source
			if mode == "watch-list" {
				lister = cache.ToListWatcherWithWatchListSemantics(source, shared.client)
			} else {
				lister = cache.ToListWatcherWithWatchListSemantics(source, noWatchList{})
			}
			informer := cache.NewSharedIndexInformer(lister, &corev1.ConfigMap{}, 0, cache.Indexers{})
			_, err := informer.AddEventHandler(seen.handler())
			must(t, err)
			go informer.RunWithContext(ctx)
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				t.Fatal("the informer did not synchronise")
			}
			_, err = maps.Create(ctx, configMap("after"), metav1.CreateOptions{})
			must(t, err)
			seen.until(t, "an addition", func(names map[string]string) bool { return names["after"] != "" })
			must(t, maps.Delete(ctx, "before-0", metav1.DeleteOptions{}))
			seen.until(t, "a deletion", func(names map[string]string) bool { return names["before-0"] == "" && names["before-4"] != "" })
		})
	}
}

// An informer goes on over a restart of the server: nothing is lost, nothing that is gone stays.
func TestInformerOverRestart(t *testing.T) {
	// At an address from which no connection is made: one to the port, made while nothing listens, could take the port.
	c := own(t, "--runtime", "simulated", "--no-driver", "--listen", "127.0.0.77:0")
	url := c.config.Host
	ns := namespace(t, c)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(ns),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "mirror=yes" }))
	seen := newMirror()
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err := informer.AddEventHandler(seen.handler())
	must(t, err)
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	maps := c.client.CoreV1().ConfigMaps(ns)
	for _, name := range []string{"kept", "gone"} {
		_, err := maps.Create(ctx, configMap(name), metav1.CreateOptions{})
		must(t, err)
	}
	seen.until(t, "both", func(names map[string]string) bool { return len(names) == 2 })
	c.kill()
	second := restart(t, c.dir, "--runtime", "simulated", "--no-driver", "--listen", url[len("https://"):])
	must(t, second.client.CoreV1().ConfigMaps(ns).Delete(ctx, "gone", metav1.DeleteOptions{}))
	_, err = second.client.CoreV1().ConfigMaps(ns).Create(ctx, configMap("new"), metav1.CreateOptions{})
	must(t, err)
	seen.until(t, "the state after the restart", func(names map[string]string) bool {
		return len(names) == 2 && names["kept"] != "" && names["new"] != ""
	})
}

// noWatchList hides that the server streams lists.
type noWatchList struct{ kubernetes.Interface }

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// An object that a selector begins or ceases to match is added to or deleted from what its watcher sees.
func TestWatchOfASelection(t *testing.T) {
	ns := namespace(t, shared)
	ctx := within(t)
	maps := shared.client.CoreV1().ConfigMaps(ns)
	object := configMap("a")
	object.Labels = nil
	object, err := maps.Create(ctx, object, metav1.CreateOptions{})
	must(t, err)
	watcher, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "mirror", ResourceVersion: object.ResourceVersion})
	must(t, err)
	defer watcher.Stop()
	object.Labels = map[string]string{"mirror": "yes"}
	object, err = maps.Update(ctx, object, metav1.UpdateOptions{})
	must(t, err)
	object.Labels = nil
	_, err = maps.Update(ctx, object, metav1.UpdateOptions{})
	must(t, err)
	for _, wanted := range []watch.EventType{watch.Added, watch.Deleted} {
		if event := <-watcher.ResultChan(); event.Type != wanted {
			t.Fatalf("%+v instead of %s", event, wanted)
		}
	}
}

func TestLeaderElection(t *testing.T) {
	ns := namespace(t, shared)
	ctx := within(t)
	leading := make(chan string, 2)
	elect := func(ctx context.Context, identity string) <-chan struct{} {
		lock, err := resourcelock.New(resourcelock.LeasesResourceLock, ns, "leader",
			shared.client.CoreV1(), shared.client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
		must(t, err)
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			// A machine that stands still for a while does not cost the leadership.
			Lock: lock, LeaseDuration: patience, RenewDeadline: patience / 2, RetryPeriod: 200 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leading <- identity },
				OnStoppedLeading: func() {},
			},
		})
		must(t, err)
		over := make(chan struct{})
		go func() {
			defer close(over)
			elector.Run(ctx)
		}()
		return over
	}
	expect := func(wanted string) {
		t.Helper()
		select {
		case got := <-leading:
			if got != wanted {
				t.Fatalf("%s leads, not %s", got, wanted)
			}
		case <-ctx.Done():
			t.Fatalf("%s does not lead", wanted)
		}
	}
	first, resign := context.WithCancel(ctx)
	over := elect(first, "first")
	expect("first")
	second, stop := context.WithCancel(ctx)
	waiting := elect(second, "second")
	resign()
	<-over
	expect("second")
	lease, err := shared.client.CoordinationV1().Leases(ns).Get(ctx, "leader", metav1.GetOptions{})
	must(t, err)
	if lease.Spec.LeaseTransitions == nil || *lease.Spec.LeaseTransitions < 1 || *lease.Spec.HolderIdentity != "second" {
		t.Fatalf("lease: %+v", lease.Spec)
	}
	stop()
	<-waiting
}

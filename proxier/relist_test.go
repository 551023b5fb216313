package proxier

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// TestManyRelists has an API server that forgets its history all the time, so that
// everything is listed again and again. Nothing comes of lists that say what is known,
// and they leave nothing in memory.
func TestManyRelists(t *testing.T) {
	const relists, objects = 1000, 50
	var all []kuberuntime.Object
	for i := range objects {
		name := fmt.Sprintf("web-%d", i)
		all = append(all, namedService(name, fmt.Sprintf("10.96.0.%d", i+1)), namedSlice(name, "10.244.1.1", "10.244.1.2"))
	}
	client := fake.NewClientset(all...)
	client.PrependWatchReactor("*", func(kubetesting.Action) (bool, watch.Interface, error) {
		w := watch.NewFakeWithChanSize(1, false)
		w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
		return true, w, nil
	})
	api := NewAPI(client, "node-1", zap.NewNop())
	r := newSourceRecorder(t)
	kinds := []string{kindService, kindSlice}
	health := newAPIHealth(zap.NewNop(), api.clock, serverOf(client), kinds, nil)
	out := newAPIOutput(r, kinds, nil)
	var reflectors []*cache.Reflector
	for _, k := range api.kinds()[:len(kinds)] {
		reflectors = append(reflectors, api.reflector(k, out, health, api.clock))
	}
	// Lists without the pauses that come between them.
	heapAfter := func(lists int) uint64 {
		for range lists {
			for _, reflector := range reflectors {
				if err := reflector.ListAndWatchWithContext(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			client.ClearActions() // it remembers all that it was asked
		}
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heapAfter(relists / 10)
	after := heapAfter(relists)
	t.Logf("heap %d KiB, before %d KiB", after>>10, before>>10)
	if after > before+1<<20 {
		t.Error("memory grows")
	}
	r.get(func() {
		if r.applies != len(kinds) || r.synced != 1 || len(r.services) != objects || len(r.slices) != objects {
			t.Errorf("%d applies, %d times synced, %d Services, %d slices", r.applies, r.synced, len(r.services), len(r.slices))
		}
	})
}

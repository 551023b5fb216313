package e2e

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// kubelet does for the Pods of a Deployment what a scheduler and a kubelet would: it
// gives each a host of the test network for a pod, makes it ready, and takes it away once
// it is to end.
type kubelet struct {
	c        *cluster
	selector metav1.ListOptions
	stop     context.CancelFunc
	ended    sync.WaitGroup

	mu    sync.Mutex
	hosts map[string]string // by Pod
	err   error
}

// startKubelet starts one for the Pods with a label app. It ends with the test.
func (c *cluster) startKubelet(t *testing.T, app string) *kubelet {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	k := &kubelet{c: c, selector: metav1.ListOptions{LabelSelector: "app=" + app}, stop: stop, hosts: map[string]string{}}
	k.ended.Go(func() { k.run(ctx) })
	t.Cleanup(func() { k.check(t) })
	return k
}

// check ends the kubelet; nothing may have failed until then.
func (k *kubelet) check(t *testing.T) {
	t.Helper()
	k.stop()
	k.ended.Wait()
	if k.err != nil {
		t.Errorf("the kubelet: %v", k.err)
	}
}

// used returns the hosts of its Pods, sorted.
func (k *kubelet) used() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for _, host := range k.hosts {
		names = append(names, host)
	}
	slices.Sort(names)
	return names
}

func (k *kubelet) run(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			k.err = err
			return
		}
	}
}

// sync looks after every Pod once.
func (k *kubelet) sync(ctx context.Context) error {
	list, err := k.c.pods().List(ctx, k.selector)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	there := map[string]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.DeletionTimestamp != nil {
			err := k.c.pods().Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			continue
		}
		there[pod.Name] = true
		if err := k.start(ctx, pod); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	for name := range k.hosts {
		if !there[name] {
			delete(k.hosts, name)
		}
	}
	return nil
}

// start gives a Pod a host, if one is free, and makes it ready.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	if k.hosts[pod.Name] != "" {
		return nil
	}
	for _, host := range []string{testnet.PodA, testnet.PodC, testnet.PodD, testnet.PodE} {
		taken := false
		for _, other := range k.hosts {
			taken = taken || other == host
		}
		if taken {
			continue
		}
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: k.c.network.Host(host).Node},
		}
		if err := k.c.pods().Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := k.c.ready(ctx, pod.Name, k.c.podAddresses(host)); err != nil {
			return err
		}
		k.hosts[pod.Name] = host
		return nil
	}
	return nil
}

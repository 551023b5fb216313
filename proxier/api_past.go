package proxier

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// apiPast finds out that the API server has an older state than this program, as after
// etcd was restored from a snapshot. A resource version that the server has not reached
// yet is one of a history that is no more. kube-apiserver 1.37 takes a watch from there
// all the same, says nothing until its own history gets that far, and never says what the
// restore undid: a deleted Service would stay, and a restored one be missing, until the
// watch ends after 5 to 10 minutes, and for good if the server has got that far by then.
//
// So a watch goes on only after the server was asked where it is, and so does a list that
// must not be older than what is known: a server waits 3 seconds for a version to come
// before it says that it is too large, and a client tries again ten times. Watches begin
// every few minutes and after outages, so that this costs next to nothing.
//
// A server that has already got further than this program was, with a new history,
// cannot be told from one that was never restored. This is why etcd's manual wants
// revisions to be bumped and old ones to be marked as compacted when a snapshot is
// restored; a watch from there is then refused with 410 Gone.
//
// A reflector uses it from one goroutine at a time.
type apiPast struct {
	log *zap.Logger
	// newest asks the server for its newest resource version of the kind.
	newest func(context.Context) (string, error)
	// fresh is the version of a list that has just arrived: a watch from there resumes
	// nothing. unreached is the last version that was found to be of a lost history.
	fresh, unreached string
}

// watch is to be called before a watch. A version that the server has not reached is an
// error that makes a reflector list everything (410 Gone). Other errors are those of the
// question, which says as much about the watch that was to follow: the same rights but
// for the verb, and the same server.
func (p *apiPast) watch(ctx context.Context, o metav1.ListOptions) error {
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		// It is a list, and a role may allow this way to list only.
		if o.ResourceVersion != "" && o.ResourceVersion == p.unreached {
			return lost(o.ResourceVersion)
		}
		return nil
	}
	fresh := p.fresh
	p.fresh = ""
	if o.ResourceVersion == fresh {
		return nil
	}
	return p.list(ctx, o)
}

// list is to be called before a list. Its errors are those of watch.
func (p *apiPast) list(ctx context.Context, o metav1.ListOptions) error {
	if o.ResourceVersion == "" || o.ResourceVersion == "0" {
		return nil
	}
	newest, err := p.newest(ctx)
	if err != nil {
		return err
	}
	// Kubernetes makes versions comparable since 1.35 (KEP-5504); those of etcd always were.
	order, err := resourceversion.CompareResourceVersion(newest, o.ResourceVersion)
	if err != nil || order >= 0 {
		return nil //nolint:nilerr // what cannot be compared cannot be judged
	}
	p.unreached = o.ResourceVersion
	p.log.Warn("the API server is older than the last known state, as after a restore of etcd: listing anew",
		zap.String("known", o.ResourceVersion), zap.String("server", newest))
	return lost(o.ResourceVersion)
}

// listed is to be called with the version of a list that has arrived.
func (p *apiPast) listed(version string) { p.fresh = version }

func lost(version string) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("resource version %s is of a history that the API server has lost", version))
}

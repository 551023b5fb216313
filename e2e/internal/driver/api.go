package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
)

const (
	// freeLimit is how long an address or port may stay taken after the Service
	// that had it was deleted.
	freeLimit = 5 * time.Second
	freePause = 50 * time.Millisecond
)

// API is an API server. Its methods are for one goroutine.
type API struct {
	http       *http.Client
	client     dynamic.Interface
	namespaces map[string]bool // those that are known to be there
}

// NewAPI returns a driver for an API server. The caller closes it.
func NewAPI(config *rest.Config) (*API, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // cases use what is deprecated, too
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &API{http: client, client: dynamicClient, namespaces: map[string]bool{}}, nil
}

// Close ends the driver's connections.
func (a *API) Close() { a.http.CloseIdleConnections() }

// Apply creates an object, or replaces the one of that name, and its status if
// the object has one. What the API server does not let change is deleted and
// made anew. The namespace is created if need be.
func (a *API) Apply(ctx context.Context, o *object.Object) error {
	client, err := a.of(object.KeyOf(o))
	if err != nil {
		return err
	}
	if err := a.ensureNamespace(ctx, o.GetNamespace()); err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return apply(ctx, client, o) })
}

func apply(ctx context.Context, client dynamic.ResourceInterface, o *object.Object) error {
	o = o.DeepCopy()
	now, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
	if err == nil {
		o.SetResourceVersion(now.GetResourceVersion())
		now, err = client.Update(ctx, o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
		if apierrors.IsInvalid(err) {
			err = errors.Join(err, client.Delete(ctx, o.GetName(), metav1.DeleteOptions{}))
			if now, createErr := create(ctx, client, o); createErr == nil {
				return applyStatus(ctx, client, o, now)
			}
			return err
		}
	} else if apierrors.IsNotFound(err) {
		now, err = create(ctx, client, o)
	}
	if err != nil {
		return err
	}
	return applyStatus(ctx, client, o, now)
}

// create creates an object. An address or a port may be taken for a moment after
// it was given back.
func create(ctx context.Context, client dynamic.ResourceInterface, o *object.Object) (*object.Object, error) {
	o.SetResourceVersion("")
	deadline := time.Now().Add(freeLimit)
	for {
		now, err := client.Create(ctx, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if o.GetKind() != object.Service || !apierrors.IsInvalid(err) || time.Now().After(deadline) {
			return now, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(freePause):
		}
	}
}

// applyStatus replaces the status of an object that was just written.
func applyStatus(ctx context.Context, client dynamic.ResourceInterface, o, now *object.Object) error {
	status, ok := o.Object["status"]
	if !ok {
		return nil
	}
	now.Object["status"] = status
	_, err := client.UpdateStatus(ctx, now, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	return err
}

// Delete deletes an object. One that is not there is no error. A namespace
// stays: to end it takes a controller, and here is none.
func (a *API) Delete(ctx context.Context, key object.Key) error {
	if key.Kind == object.Namespace {
		return nil
	}
	client, err := a.of(key)
	if err != nil {
		return err
	}
	if err := client.Delete(ctx, key.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// of returns the client for an object.
func (a *API) of(key object.Key) (dynamic.ResourceInterface, error) {
	kind, err := object.KindOf(key.Kind)
	if err != nil {
		return nil, err
	}
	resources := a.client.Resource(kind.Resource)
	if !kind.Namespaced {
		return resources, nil
	}
	return resources.Namespace(key.Namespace), nil
}

func (a *API) ensureNamespace(ctx context.Context, name string) error {
	if name == "" || a.namespaces[name] {
		return nil
	}
	client, err := a.of(object.Key{Kind: object.Namespace, Name: name})
	if err != nil {
		return err
	}
	o := &object.Object{}
	o.SetAPIVersion("v1")
	o.SetKind(object.Namespace)
	o.SetName(name)
	if _, err := client.Create(ctx, o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	a.namespaces[name] = true
	return nil
}

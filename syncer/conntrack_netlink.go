package syncer

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// flowTable is the kernel's conntrack table, open for one pass.
type flowTable interface {
	// dump calls visit with every flow of the query, perhaps with others too, and with
	// some twice. What visit gets is valid only until it returns; its error ends the
	// dump. With any error some flows may have been left out.
	dump(ctx context.Context, q query, visit func(f *flow) error) error
	// delete deletes the entry and reports whether it was still there. It may be
	// called by visit.
	delete(ctx context.Context, f *flow) (bool, error)
	close() error
}

// errNoConntrack says that this kernel, or this process, has no access to conntrack
// entries, and that trying again is of no use.
type errNoConntrack struct{ err error }

// netlinkFlows is the real flowTable. It has a socket to dump and one to delete, so
// that each entry can be deleted as soon as it was judged: between two parts of a
// dump the kernel holds no lock.
type netlinkFlows struct {
	dumps, deletes *rawSocket
}

// openNetlinkFlows opens the conntrack table of a network namespace, see NewNetlink.
func openNetlinkFlows(netns int) (flowTable, error) {
	dumps, err := newRawSocket(netns, dumpBytes)
	if errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.EAFNOSUPPORT) {
		err = &errNoConntrack{err}
	}
	if err != nil {
		return nil, err
	}
	deletes, err := newRawSocket(netns, 4096)
	if err != nil {
		return nil, errors.Join(err, dumps.close())
	}
	return &netlinkFlows{dumps, deletes}, nil
}

func (t *netlinkFlows) close() error { return errors.Join(t.dumps.close(), t.deletes.close()) }

func (t *netlinkFlows) dump(ctx context.Context, q query, visit func(f *flow) error) error {
	visited := false
	visitAll := func(f *flow) error {
		visited = true
		return visit(f)
	}
	err := t.dumpWith(ctx, q, true, visitAll)
	if !visited && isUnsupported(err) { // a kernel that knows filters, but not this one
		err = t.dumpWith(ctx, q, false, visitAll)
	}
	if !visited && (isUnsupported(err) || errors.Is(err, syscall.EPERM)) {
		return &errNoConntrack{err}
	}
	return err
}

func isUnsupported(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)
}

// dumpWith is one dump.
func (t *netlinkFlows) dumpWith(ctx context.Context, q query, filter bool, visit func(f *flow) error) error {
	var f flow
	err := t.dumps.dump(ctx, dumpRequest(t.dumps.next(), q, filter), ctMessageNew, func(payload []byte) error {
		if !f.parse(payload) {
			return nil
		}
		return visit(&f)
	})
	if err != nil {
		return fmt.Errorf("read the conntrack table: %w", err)
	}
	return nil
}

func (t *netlinkFlows) delete(ctx context.Context, f *flow) (bool, error) {
	s := t.deletes
	stop := s.bind(ctx)
	defer stop()
	seq := s.next()
	request, err := deleteRequest(s.request[:0], seq, f)
	if err != nil {
		return false, err
	}
	s.request = request
	if err := s.send(request); err != nil {
		return false, fmt.Errorf("delete a conntrack entry: %w", err)
	}
	err = s.answer(ctx, seq)
	if errors.Is(err, syscall.ENOENT) { // has ended, or another one is in its place
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete a conntrack entry: %w", err)
	}
	return true, nil
}

// Error says what is missing.
func (e *errNoConntrack) Error() string {
	return e.err.Error() + ": the kernel needs the module nf_conntrack_netlink (CONFIG_NF_CT_NETLINK), and this process CAP_NET_ADMIN"
}

// Unwrap returns the underlying error.
func (e *errNoConntrack) Unwrap() error { return e.err }

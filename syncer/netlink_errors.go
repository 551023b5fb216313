package syncer

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/mdlayher/netlink"
)

// kernelError says what an error of the socket means.
func kernelError(op string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	cause := Unknown
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		cause = Forbidden
		err = fmt.Errorf("%w: run as root or with CAP_NET_ADMIN", err)
	case errors.Is(err, syscall.EMSGSIZE):
		cause = TooLarge
	case isRefusal(err):
		cause = Refused
	}
	return &Error{Op: op, Cause: cause, Err: err}
}

// openError says what an error of opening the socket means. None is a refusal of a
// batch: descriptors that ran out, for example, may be there again soon.
func openError(err error) error {
	const op = "open a netlink socket"
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return kernelError(op, err)
	case errors.Is(err, syscall.EPROTONOSUPPORT), errors.Is(err, syscall.EAFNOSUPPORT):
		return &Error{Op: op, Cause: Refused, Err: noNFTables(err)}
	default:
		return &Error{Op: op, Cause: Unknown, Err: err}
	}
}

func noNFTables(err error) error {
	return fmt.Errorf("%w: the kernel has no nf_tables, load the module or use a kernel with CONFIG_NF_TABLES", err)
}

// isRefusal reports whether all answers that are errors are of those with which
// nf_tables refuses a message. Everything else, such as ENOBUFS, EINTR, EAGAIN,
// ENOMEM or a timeout, says nothing about the message.
func isRefusal(err error) bool {
	leaves := errorLeaves(err)
	for _, leaf := range leaves {
		refused := slices.ContainsFunc([]syscall.Errno{
			syscall.EINVAL, syscall.ENOENT, syscall.EEXIST, syscall.EBUSY, syscall.EOPNOTSUPP, syscall.ENOTSUP,
			syscall.ERANGE, syscall.EMLINK, syscall.ELOOP, syscall.ENFILE, syscall.ENOSPC, syscall.EOVERFLOW,
			syscall.ENAMETOOLONG, syscall.E2BIG, syscall.EMFILE,
		}, func(errno syscall.Errno) bool { return errors.Is(leaf, errno) })
		if !refused {
			return false
		}
	}
	return len(leaves) > 0
}

// errorLeaves returns the answers of the kernel in a tree of wrapped and joined
// errors.
func errorLeaves(err error) []error {
	switch e := err.(type) { //nolint:errorlint // the tree itself is walked
	case nil:
		return nil
	case *netlink.OpError:
		return []error{e}
	case interface{ Unwrap() []error }:
		var leaves []error
		for _, inner := range e.Unwrap() {
			leaves = append(leaves, errorLeaves(inner)...)
		}
		return leaves
	case interface{ Unwrap() error }:
		return errorLeaves(e.Unwrap())
	default:
		return []error{e}
	}
}

package syncer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"github.com/nftproxy/nftproxy/rules"
)

// State lists our chains and sets. A listing that another commit interrupts may
// have holes, so it is read until it comes out the same twice.
func (k *Netlink) State(ctx context.Context, families []rules.Family) (State, error) {
	const op = "list our tables"
	var last State
	for range 10 {
		state, err := k.state(ctx, families)
		if err != nil {
			return nil, kernelError(op, err)
		}
		if last != nil && reflect.DeepEqual(state, last) {
			return state, nil
		}
		last = state
	}
	return nil, &Error{Op: op, Cause: Unknown, Err: errors.New("another program keeps changing them")}
}

func (k *Netlink) state(ctx context.Context, families []rules.Family) (State, error) {
	state := State{}
	err := withConn(ctx, k.netns, func(conn *nftables.Conn) error {
		for _, f := range families {
			table := rules.EncodeTable(f)
			table.Name = k.table
			_, err := conn.ListTableOfFamily(table.Name, table.Family)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				state[f], err = tableState(conn, table)
			}
			if err != nil {
				return fmt.Errorf("list the table %s %s: %w", f.Keyword(), table.Name, err)
			}
		}
		return nil
	})
	return state, err
}

// withConn calls use with a library's socket of its own.
func withConn(ctx context.Context, netns int, use func(*nftables.Conn) error) (err error) {
	c, err := openLibraryConn(netns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return c.use(ctx, use)
}

// libraryConn is a library's socket to a network namespace, for what happens rarely.
type libraryConn struct {
	conn   *nftables.Conn
	socket *netlink.Conn
}

// openLibraryConn opens a socket to a network namespace, see NewNetlink.
func openLibraryConn(netns int) (*libraryConn, error) {
	c := &libraryConn{}
	var err error
	c.conn, err = nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(netns),
		nftables.WithSockOptions(func(socket *netlink.Conn) error {
			c.socket = socket
			return nil
		}))
	if err != nil {
		return nil, openError(err)
	}
	return c, nil
}

// use calls f. Answers are waited for until answerTimeout is over or the context is done;
// the latter makes the socket useless.
func (c *libraryConn) use(ctx context.Context, f func(*nftables.Conn) error) error {
	if err := c.socket.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return fmt.Errorf("set the deadline: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return f(c.conn)
}

func (c *libraryConn) close() error {
	if err := c.conn.CloseLasting(); err != nil {
		return fmt.Errorf("close the netlink socket: %w", err)
	}
	return nil
}

func tableState(conn *nftables.Conn, table *nftables.Table) (TableState, error) {
	ts := TableState{Chains: map[string]*rules.Hook{}, Sets: map[string]bool{}}
	chains, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return ts, fmt.Errorf("chains: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name == table.Name {
			ts.Chains[c.Name] = hookOf(c)
		}
	}
	sets, err := conn.GetSets(table)
	if err != nil {
		return ts, fmt.Errorf("sets: %w", err)
	}
	for _, s := range sets {
		if !s.Anonymous { // an anonymous set goes with its rule
			ts.Sets[s.Name] = s.IsMap
		}
	}
	return ts, nil
}

// hookOf returns the hook of a base chain, nil for a regular chain. A policy other
// than accept makes it a hook that is never wanted.
func hookOf(c *nftables.Chain) *rules.Hook {
	if c.Hooknum == nil || c.Priority == nil {
		return nil
	}
	hook := &rules.Hook{Type: rules.ChainType(c.Type), Point: rules.HookPoint(*c.Hooknum), Priority: int32(*c.Priority)}
	if c.Policy != nil && *c.Policy != nftables.ChainPolicyAccept {
		hook.Type += " with policy drop"
	}
	return hook
}

package syncer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nftproxy/nftproxy/rules"
)

// Monitor notices that another process changed our tables.
//
// The kernel notifies of every object of a commit, and then, with a new generation, of
// the process that made it. What makes a commit ours is the port ID of the netlink
// socket that it came from, which all its notifications carry. The process ID that the
// kernel adds is the ID of a thread, as the initial PID namespace counts: a process in a
// container does not know its own.
type Monitor struct {
	open    func() (changeFeed, error)
	ports   ownPorts
	foreign func(ForeignChange)
	lost    func()
	problem func(error)

	once       sync.Once
	subscribed chan struct{}

	generation func(ctx context.Context) (uint32, error) // the number of transactions
	mu         sync.Mutex
	feed       changeFeed // that is joined, nil for none; for Quiet
}

// ForeignChange is what another process did to our tables in one transaction.
type ForeignChange struct {
	// Process is the name of the thread that committed it, at most 15 bytes. That is the
	// name of the program, if it did not choose another one.
	Process string
	// PID is the ID of that thread in the initial PID namespace. The main thread of a
	// process has the ID of the process.
	PID int
	// Families are those of the tables, in the order of rules.Families.
	Families []rules.Family
	// Added and Deleted count tables, chains, rules, sets, elements and other objects.
	// An object that was changed counts as added.
	Added, Deleted int
}

// String says what happened, for a log.
func (c ForeignChange) String() string {
	return fmt.Sprintf("process %d (%s) added %d and deleted %d objects", c.PID, c.Process, c.Added, c.Deleted)
}

// changeFeed is a socket for the kernel's notifications of nf_tables. It is of no use any
// more after an error.
type changeFeed interface {
	// bind ends receive when the context is done, until stop.
	bind(ctx context.Context) (stop func())
	// receive waits for notifications: whole netlink messages, which the next call may
	// overwrite.
	receive() ([]byte, error)
	// ignore drops all that comes from these port IDs, but new generations.
	ignore(ports []uint32) error
	// join has the kernel begin to send, leave has it end that.
	join() error
	leave() error
	close() error
}

// NewMonitor returns a Monitor for the network namespace with this file descriptor, 0
// for that of the process. Every netlink socket of this process counts as ours, if it is
// still open when its commit becomes known. The functions are called by Run, and must
// not block.
//
// Each transaction of another process that touches one of our tables is told to foreign,
// once. Changes of other tables are nobody's business.
//
// If notifications were lost, lost is called, once they are received again: our tables
// may have been changed. A commit of ours is the cause of that at most once for each
// socket. So whoever writes everything again then does not do so for ever.
//
// Problems go to problem, each once until it is over.
func NewMonitor(netns int, foreign func(ForeignChange), lost func(), problem func(error)) *Monitor {
	return &Monitor{
		open:       func() (changeFeed, error) { return openChangeFeed(netns) },
		generation: func(ctx context.Context) (uint32, error) { return readGeneration(ctx, netns) },
		ports:      ownPorts{list: listPorts, at: portAt},
		foreign:    foreign, lost: lost, problem: problem, subscribed: make(chan struct{}),
	}
}

// Subscribed is closed when Run has subscribed for the first time. What happens from
// then on is noticed.
func (m *Monitor) Subscribed() <-chan struct{} { return m.subscribed }

// Run watches until the context is done, then returns nil. No failure ends it: it tries
// again, at first after 20 ms, at most every 10 s. It is called once.
func (m *Monitor) Run(ctx context.Context) error {
	w := watch{Monitor: m}
	for ctx.Err() == nil {
		if err := w.follow(ctx); err != nil && ctx.Err() == nil {
			w.missed = true
			err = fmt.Errorf("changes of other programs to our tables may go unnoticed, it is tried again: %w", err)
			sleep(ctx, w.doing.failed(err, m.problem))
		}
	}
	return nil
}

// watch is what Run knows.
type watch struct {
	*Monitor
	feed    changeFeed
	pending ForeignChange // what the transaction did so far, whose end has not come yet
	missed  bool          // something, since the last feed has gone

	opening, receiving trouble
	doing              *trouble // the one of the two that is tried
}

// follow watches until something goes wrong or the context is done.
func (w *watch) follow(ctx context.Context) (err error) {
	w.doing = &w.opening
	if w.feed, err = w.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.feed.close()) }()
	stop := w.feed.bind(ctx)
	defer stop()
	if err := w.learn(); err != nil {
		return err
	}
	if err := w.feed.join(); err != nil {
		return err
	}
	w.attach(w.feed)
	defer w.attach(nil)
	w.opening.over()
	w.once.Do(func() { close(w.subscribed) })
	w.pending = ForeignChange{}
	if w.missed {
		w.missed = false
		w.lost()
	}
	w.doing = &w.receiving
	for {
		part, err := w.feed.receive()
		if err != nil {
			return err
		}
		if err := w.read(part); err != nil {
			return err
		}
		w.receiving.over()
	}
}

// learn finds our sockets and ignores what they do. A large batch of ours makes more
// notifications than there is room for.
func (w *watch) learn() error {
	if err := w.ports.scan(); err != nil {
		return err
	}
	return w.feed.ignore(w.ports.all())
}

// read takes some messages.
func (w *watch) read(part []byte) error {
	for len(part) > 0 {
		m, rest, err := cutMessage(part)
		if err != nil {
			return err
		}
		sender := portOf(part)
		part = rest
		if m.messageType == newGeneration {
			err = w.commit(sender, m.payload)
		} else if isOurs(m) {
			count(&w.pending, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commit judges a transaction at its end.
func (w *watch) commit(sender uint32, payload []byte) error {
	change := w.pending
	w.pending = ForeignChange{}
	if w.ports.owns(sender) {
		return nil
	}
	ignored := w.ports.had(sender)
	if !ignored && len(change.Families) == 0 {
		return nil
	}
	// One of our sockets that was opened since, or a stranger.
	if err := w.learn(); err != nil {
		return err
	}
	switch {
	case w.ports.owns(sender):
	case ignored: // one that we closed, or a stranger that has its port ID now
		w.lost()
	default:
		change.PID, change.Process = parseGeneration(payload)
		w.foreign(change)
	}
	return nil
}

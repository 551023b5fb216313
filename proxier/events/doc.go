// Package events tells the owners of objects, through Events of the API server, what
// is wrong with them, and about the node how the proxy does.
//
// Events are written in the form events.k8s.io/v1 by one goroutine, that of
// [Recorder.Run]. client-go's broadcaster is not used: it starts a goroutine for each
// Event that nobody can wait for, and forgets what is queued when the process ends,
// which is when the Event that says why it ends is queued.
//
// A problem that goes on is told seldom: the same text about the same object once in
// [RepeatInterval]; and of all Events together no more than [Burst] at once and one
// each [Interval] after that, so that a mistake in many objects is no load on the API
// server. What is left out is in the log, for debugging.
package events

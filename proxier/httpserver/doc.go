// Package httpserver runs plain HTTP servers whose end can be waited for: when [Serve]
// or [Server.Run] returns, neither a listener nor a connection nor a handler of it is
// left.
package httpserver

//go:build tools

// Package etcd names the program, so that go.mod requires what it is built from.
package etcd

import _ "go.etcd.io/etcd/server/v3"

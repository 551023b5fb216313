// Command etcd is etcd, of the version that belongs to the API server of the tests.
// kube-apiserver serves lists as watches, and consistent lists without asking etcd for
// the objects, from etcd 3.5.13 on (3.4.31 of the older ones); distributions have older
// ones.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }

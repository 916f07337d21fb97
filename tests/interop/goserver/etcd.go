package main

import (
	"fmt"
	"net"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd serves a member of its own at `address`, or at a free port, and returns what ends it and where it is.
// Writes are synced, as by default.
func startEtcd(dir, address string) (func(), string, error) {
	if address == "" {
		free, err := freeAddress()
		if err != nil {
			return nil, "", err
		}
		address = free
	}
	client, err := url.Parse(address)
	if err != nil {
		return nil, "", err
	}
	// Nobody else joins, but a member has an address for its peers.
	free, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	peer, err := url.Parse(free)
	if err != nil {
		return nil, "", err
	}
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel = "error"
	config.ListenClientUrls = []url.URL{*client}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = []url.URL{*peer}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.QuotaBackendBytes = 8 << 30
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, "", fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd.Close, address, nil
	case err := <-etcd.Err():
		return nil, "", fmt.Errorf("etcd: %w", err)
	case <-time.After(time.Minute):
		etcd.Close()
		return nil, "", fmt.Errorf("etcd: not ready after a minute")
	}
}

// freeAddress is a loopback address where nobody listens now.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return "http://" + listener.Addr().String(), nil
}

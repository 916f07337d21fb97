package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// users have a token and a kubeconfig each. Fair queueing treats the components as it does in a cluster.
var users = []struct{ name, groups string }{
	{"admin", "system:masters"},
	{"system:kube-scheduler", ""},
	{"system:kube-controller-manager", ""},
}

// makeTokens writes the file of tokens, unless there is one from an earlier run.
func makeTokens(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	var lines strings.Builder
	for _, u := range users {
		secret := make([]byte, 16)
		if _, err := rand.Read(secret); err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", hex.EncodeToString(secret), u.name, u.name, u.groups)
	}
	return os.WriteFile(path, []byte(lines.String()), 0o600)
}

// tokens authenticates by a file, which is read again when it was changed: so tokens end.
type tokens struct {
	path    string
	mutex   sync.Mutex
	read    time.Time
	current *tokenfile.TokenAuthenticator
}

func (t *tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	info, err := os.Stat(t.path)
	if err != nil {
		return nil, false, err
	}
	if t.current == nil || !info.ModTime().Equal(t.read) {
		current, err := tokenfile.NewCSV(t.path)
		if err != nil {
			return nil, false, err
		}
		t.current, t.read = current, info.ModTime()
	}
	return t.current.AuthenticateToken(ctx, token)
}

// writeKubeconfigs writes the administrator's to `path`, and those of the components beside it.
func writeKubeconfigs(path, tokenFile, server string, ca []byte) error {
	lines, err := os.ReadFile(tokenFile)
	if err != nil {
		return err
	}
	for i, line := range strings.Split(strings.TrimSpace(string(lines)), "\n") {
		columns := strings.SplitN(line, ",", 3)
		to := path
		if i > 0 {
			to = path + "-" + strings.TrimPrefix(columns[1], "system:")
		}
		config := clientcmdapi.NewConfig()
		config.Clusters["goserver"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
		config.AuthInfos[columns[1]] = &clientcmdapi.AuthInfo{Token: columns[0]}
		config.Contexts["goserver"] = &clientcmdapi.Context{Cluster: "goserver", AuthInfo: columns[1]}
		config.CurrentContext = "goserver"
		// Who waits for the file sees all of it.
		if err := clientcmd.WriteToFile(*config, to+".new"); err != nil {
			return err
		}
		if err := os.Rename(to+".new", to); err != nil {
			return err
		}
	}
	return nil
}

package interop

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// registry runs the published registry with its files in a directory, and returns its address.
func registry(t *testing.T) string {
	t.Helper()
	program := os.Getenv("REGISTRY")
	if program == "" {
		t.Skip("no registry: tests/interop/run builds one")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: info, formatter: json}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: 127.0.0.1:0}\n",
		filepath.Join(dir, "data"))
	must(t, os.WriteFile(config, []byte(text), 0o600))
	server := exec.Command(program, "serve", config)
	log, err := server.StderrPipe()
	must(t, err)
	must(t, server.Start())
	// Waited for, so that it writes nothing into the directory while that is removed.
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	late := time.AfterFunc(patience, func() { _ = server.Process.Kill() })
	defer late.Stop()
	// It says which port it has got.
	lines, said := bufio.NewScanner(log), []string{}
	for lines.Scan() {
		var entry struct{ Msg string }
		if err := json.Unmarshal(lines.Bytes(), &entry); err == nil {
			if address, found := strings.CutPrefix(entry.Msg, "listening on "); found {
				go func() { _, _ = io.Copy(io.Discard, log) }()
				return address
			}
		}
		said = append(said, lines.Text())
	}
	t.Fatalf("the registry ended, or did not listen in time: %s", strings.Join(said, "\n"))
	return ""
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// pushImage packs one file as an image and pushes it, without Docker. It returns the manifest's digest.
func pushImage(t *testing.T, address, repository, tag, file, content string) string {
	t.Helper()
	var plain, packed bytes.Buffer
	archive := tar.NewWriter(&plain)
	must(t, archive.WriteHeader(&tar.Header{Name: file, Mode: 0o755, Size: int64(len(content))}))
	_, err := archive.Write([]byte(content))
	must(t, err)
	must(t, archive.Close())
	compressor := gzip.NewWriter(&packed)
	_, err = compressor.Write(plain.Bytes())
	must(t, err)
	must(t, compressor.Close())
	encode := func(value any) []byte {
		text, err := json.Marshal(value)
		must(t, err)
		return text
	}
	config := encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"/" + file}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(plain.Bytes())}},
	})
	base := "http://" + address + "/v2/" + repository
	send := func(method, url, kind string, body []byte) *http.Response {
		request, err := http.NewRequest(method, url, bytes.NewReader(body))
		must(t, err)
		request.Header.Set("Content-Type", kind)
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		defer response.Body.Close()
		if text, _ := io.ReadAll(response.Body); response.StatusCode >= 300 {
			t.Fatalf("%s %s: %s: %s", method, url, response.Status, text)
		}
		return response
	}
	blob := func(kind string, content []byte) map[string]any {
		location, err := send("POST", base+"/blobs/uploads/", "", nil).Location()
		must(t, err)
		query := location.Query()
		query.Set("digest", digest(content))
		location.RawQuery = query.Encode()
		send("PUT", location.String(), "application/octet-stream", content)
		return map[string]any{"mediaType": kind, "digest": digest(content), "size": len(content)}
	}
	const kind = "application/vnd.oci.image.manifest.v1+json"
	manifest := encode(map[string]any{
		"schemaVersion": 2, "mediaType": kind,
		"config": blob("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{blob("application/vnd.oci.image.layer.v1.tar+gzip", packed.Bytes())},
	})
	send("PUT", base+"/manifests/"+tag, kind, manifest)
	return digest(manifest)
}

// images runs `allot image`.
func images(t *testing.T, root string, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(within(t), os.Getenv("ALLOT_BIN"), append(append([]string{"image"}, arguments...), "--root-dir", root)...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// TestImages pulls from the published registry by tag and by digest, lists and removes.
func TestImages(t *testing.T) {
	address := registry(t)
	root := t.TempDir()
	sum := pushImage(t, address, "some/app", "v1", "hello", "content")
	name := address + "/some/app"
	for _, image := range []string{name + ":v1", name + "@" + sum} {
		output, err := images(t, root, "pull", image)
		if err != nil || !strings.Contains(output, name+"@"+sum) {
			t.Fatalf("pull %s: %v: %s", image, err, output)
		}
	}
	found, err := filepath.Glob(filepath.Join(root, "images/layers/*/fs/hello"))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("the layer is not unpacked: %v", found)
	}
	output, err := images(t, root, "list")
	if err != nil || !strings.Contains(output, name+":v1") {
		t.Fatalf("list: %v: %s", err, output)
	}
	if output, err := images(t, root, "pull", name+":none"); err == nil || !strings.Contains(output, "not found") {
		t.Fatalf("a missing image: %v: %s", err, output)
	}
	for _, image := range []string{name + ":v1", name + "@" + sum} {
		if output, err := images(t, root, "remove", image); err != nil {
			t.Fatalf("remove %s: %v: %s", image, err, output)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(root, "images/layers/*")); len(left) != 0 {
		t.Fatalf("layers are left: %v", left)
	}
}

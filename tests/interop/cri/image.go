package cri

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// image writes an OCI image with one program, /app, as a tar file that `ctr image import` reads.
func image(file, name string, program []byte) error {
	var layer bytes.Buffer
	files := tar.NewWriter(&layer)
	for _, directory := range []string{"tmp/", "etc/", "data/"} {
		header := &tar.Header{Name: directory, Typeflag: tar.TypeDir, Mode: 0o1777}
		if err := files.WriteHeader(header); err != nil {
			return err
		}
	}
	for path, text := range map[string][]byte{"app": program, "etc/passwd": []byte("root:x:0:0::/:/app\nweb:x:1000:1000::/:/app\n")} {
		if err := files.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := files.Write(text); err != nil {
			return err
		}
	}
	if err := files.Close(); err != nil {
		return err
	}
	blobs := map[string][]byte{}
	add := func(kind string, content []byte) map[string]any {
		digest := fmt.Sprintf("%x", sha256.Sum256(content))
		blobs["blobs/sha256/"+digest] = content
		return map[string]any{"mediaType": kind, "digest": "sha256:" + digest, "size": len(content)}
	}
	encoded := func(value any) []byte {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		return text
	}
	of := add("application/vnd.oci.image.layer.v1.tar", layer.Bytes())
	config := add("application/vnd.oci.image.config.v1+json", encoded(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/app"}, "Env": []string{"PATH=/", "FROM=image"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []any{of["digest"]}},
	}))
	manifest := add("application/vnd.oci.image.manifest.v1+json", encoded(map[string]any{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config":        config,
		"layers":        []any{of},
	}))
	manifest["annotations"] = map[string]string{"io.containerd.image.name": name}
	manifest["platform"] = map[string]string{"architecture": runtime.GOARCH, "os": "linux"}
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion": "1.0.0"}`)
	blobs["index.json"] = encoded(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	archive := tar.NewWriter(out)
	for path, content := range blobs {
		if err := archive.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}

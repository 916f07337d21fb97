package main

import (
	"encoding/json"
	"net/http"
)

// review is an AdmissionReview, as far as it matters here.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID    string `json:"uid"`
	Object struct {
		Data map[string]string `json:"data"`
	} `json:"object"`
}

type response struct {
	UID     string `json:"uid"`
	Allowed bool   `json:"allowed"`
	Status  struct {
		Message string `json:"message"`
	} `json:"status"`
}

// admit serves an admission webhook that refuses config maps with the key `refused`, in the words of its value.
func admit(address, certificate, key string) error {
	handler := func(writer http.ResponseWriter, incoming *http.Request) {
		asked := review{}
		if err := json.NewDecoder(incoming.Body).Decode(&asked); err != nil || asked.Request == nil {
			http.Error(writer, "not a review", http.StatusBadRequest)
			return
		}
		answer := &response{UID: asked.Request.UID}
		why, found := asked.Request.Object.Data["refused"]
		answer.Allowed, answer.Status.Message = !found, why
		writer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(writer).Encode(review{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: answer})
	}
	http.HandleFunc("POST /admit", handler)
	return http.ListenAndServeTLS(address, certificate, key, nil)
}

package lab

import "vicinity.dev/vicinity/test/kube"

// Client is an administrator's client of a lab's API.
type Client struct{ *kube.Client }

func newClient(kubeconfig string) (*Client, error) {
	client, err := kube.New(kubeconfig)
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

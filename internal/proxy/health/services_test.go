package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

var (
	loopback = netip.MustParseAddr("127.0.0.1")
	web      = types.NamespacedName{Namespace: "shop", Name: "web"}
)

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return netip.MustParseAddrPort(listener.Addr().String()).Port()
}

// check asks as a load balancer does.
func check(t *testing.T, port uint16) (*http.Response, serviceReport) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var made serviceReport
	if err := json.Unmarshal(text, &made); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return response, made
}

func TestServiceChecks(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(start)
	state := NewState(clock)
	state.Updated(corev1.IPv4Protocol)
	services := NewServices(state)
	defer services.Close()
	set := func(addresses []netip.Addr, wanted map[types.NamespacedName]Service) {
		t.Helper()
		if failures := services.Set(t.Context(), addresses, wanted); len(failures) > 0 {
			t.Fatal(failures)
		}
	}
	port := freePort(t)
	set([]netip.Addr{loopback}, map[types.NamespacedName]Service{web: {Port: port, LocalEndpoints: 2}})
	response, made := check(t, port)
	if response.StatusCode != http.StatusOK || response.Header.Get("X-Load-Balancing-Endpoint-Weight") != "2" ||
		made.Service.Namespace != "shop" || made.Service.Name != "web" || made.LocalEndpoints != 2 || !made.ServiceProxyHealthy {
		t.Errorf("%s with two endpoints: %+v", response.Status, made)
	}

	set([]netip.Addr{loopback}, map[types.NamespacedName]Service{web: {Port: port}})
	if response, made := check(t, port); response.StatusCode != http.StatusServiceUnavailable || response.Header.Get(weightHeader) != "0" {
		t.Errorf("%s without endpoints: %+v", response.Status, made)
	}

	set([]netip.Addr{loopback}, map[types.NamespacedName]Service{web: {Port: port, LocalEndpoints: 1}})
	state.Queued(corev1.IPv4Protocol)
	clock.SetTime(start.Add(Timeout))
	if response, made := check(t, port); response.StatusCode != http.StatusServiceUnavailable || made.ServiceProxyHealthy {
		t.Errorf("%s of a proxy that lags: %+v", response.Status, made)
	}

	// A removed check frees its port.
	for name, stop := range map[string]func(){
		"without the Service":   func() { set([]netip.Addr{loopback}, nil) },
		"without the address":   func() { set(nil, map[types.NamespacedName]Service{web: {Port: port}}) },
		"with another port":     func() { set([]netip.Addr{loopback}, map[types.NamespacedName]Service{web: {Port: freePort(t)}}) },
		"when the program ends": services.Close,
	} {
		set([]netip.Addr{loopback}, map[types.NamespacedName]Service{web: {Port: port}})
		stop()
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Errorf("%s the port is held: %v", name, err)
			continue
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A port that another program uses is retried.
func TestTakenPortsAreRetried(t *testing.T) {
	taken, opened := true, 0
	services := newServices(NewState(clocktesting.NewFakePassiveClock(start)), func(_ context.Context, network, address string) (net.Listener, error) {
		if network != "tcp6" || address != "[2001:db8::1]:1234" {
			t.Errorf("asked for %s %s", network, address)
		}
		if taken {
			return nil, errors.New("address already in use")
		}
		opened++
		return net.Listen("tcp4", "127.0.0.1:0")
	})
	defer services.Close()
	addresses := []netip.Addr{netip.MustParseAddr("2001:db8::1")}
	wanted := map[types.NamespacedName]Service{web: {Port: 1234}}
	if failures := services.Set(t.Context(), addresses, wanted); failures[web] == nil {
		t.Error("the taken port is not reported")
	}
	taken = false
	for range 2 {
		if failures := services.Set(t.Context(), addresses, wanted); len(failures) > 0 {
			t.Error(failures)
		}
	}
	if opened != 1 {
		t.Errorf("opened %d times", opened)
	}
}

// A port whose listener fails, for example for lack of memory, is opened again.
func TestBrokenPortsAreOpenedAgain(t *testing.T) {
	opened := 0
	services := newServices(NewState(clocktesting.NewFakePassiveClock(start)), func(context.Context, string, string) (net.Listener, error) {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if opened++; err == nil && opened == 1 {
			err = listener.Close() // so that Accept fails
		}
		return listener, err
	})
	defer services.Close()
	set := func() {
		services.Set(t.Context(), []netip.Addr{loopback}, map[types.NamespacedName]Service{web: {Port: 1234}})
	}
	set()
	for end := time.Now().Add(time.Minute); !services.Broken(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the port's failure is not recorded")
		}
	}
	set()
	if opened != 2 || services.Broken() {
		t.Errorf("opened %d times", opened)
	}
}

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/inspect"
)

// losable is a cluster of four nodes in each of three zones that can lose zone-a. A node has room for one pod of web.
func losable() *Loss {
	l := &Loss{Zone: "zone-a", Bound: 50, Unread: map[Source]string{}}
	for z, zone := range []string{"a", "b", "c"} {
		for n := 1; n <= 4; n++ {
			node := aNode(fmt.Sprintf("node-%s%d", zone, n), "zone-"+zone, "north")
			node.Labels[corev1.LabelHostname] = node.Name
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", z, n)}}
			node.Status.Allocatable = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("20"),
			}
			l.Nodes = append(l.Nodes, node)
			l.run("DaemonSet", "kube-system", "log", "100m", node.Name)
		}
		first := "node-" + zone + "1"
		l.run("Node", "kube-system", "kube-apiserver", "100m", first)
		l.run("Node", "kube-system", "etcd", "100m", first)
	}
	l.run("Deployment", "shop", "web", "2", "node-a1", "node-a2", "node-b1", "node-b2", "node-c1", "node-c2")
	l.run("StatefulSet", "data", "db", "500m", "node-a3", "node-b3", "node-c3")
	l.run("Deployment", "kube-system", "dns", "100m", "node-a1", "node-b1", "node-b2")
	l.run("Deployment", "certs", "hook", "100m", "node-a1", "node-b1", "node-b2")
	l.run("Pod", "shop", "shell", "100m", "node-a1")
	honor := corev1.NodeInclusionPolicyHonor
	l.each("web", func(pod *corev1.Pod) {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, NodeTaintsPolicy: &honor,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}}
	})
	l.each("db", func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		}}}}
		pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + pod.Name}}}}
		l.Claims = append(l.Claims, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "data-" + pod.Name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + pod.Name},
		})
		l.Volumes = append(l.Volumes, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + pod.Name}})
	})
	dns := aService("kube-system", "dns", nil)
	dns.Labels["k8s-app"] = "kube-dns"
	headless := aService("data", "db", nil)
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	apiServers := aService("default", "kubernetes", nil)
	apiServers.Spec.Selector = nil
	l.Services = []*corev1.Service{aService("shop", "web", nil), headless, dns, aService("certs", "hook", nil), apiServers}
	l.PDBs = []*policyv1.PodDisruptionBudget{aPDB("web", "web")}
	l.PDBs[0].Status.DesiredHealthy = 4
	l.Autoscalers = []*autoscalingv2.HorizontalPodAutoscaler{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}, MaxReplicas: 12},
		Status:     autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: 6, DesiredReplicas: 6},
	}}
	for _, kind := range []string{inspect.Mutating, inspect.Validating} {
		l.Webhooks = append(l.Webhooks, inspect.WebhookConfiguration{Kind: kind, Name: "certs", Webhooks: []inspect.Webhook{{
			Name: "hook.certs", Client: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "certs", Name: "hook"}},
		}}})
	}
	return l
}

// run adds ready pods of a controller, one on each node.
func (l *Loss) run(kind, namespace, app, cpu string, nodes ...string) {
	for _, node := range nodes {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", app, len(l.Pods)), Labels: map[string]string{"app": app}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("512Mi"),
			}}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
		owner := metav1.OwnerReference{Kind: kind, Name: app, Controller: new(true)}
		switch kind {
		case "Deployment":
			owner.Kind, owner.Name, pod.Labels["pod-template-hash"] = "ReplicaSet", app+"-5d8c", "5d8c"
		case "Node":
			owner.Name, pod.Labels["component"] = node, app
		}
		if kind != "Pod" {
			pod.OwnerReferences = []metav1.OwnerReference{owner}
		}
		l.Pods = append(l.Pods, pod)
	}
}

// each visits the pods of an app.
func (l *Loss) each(app string, visit func(*corev1.Pod)) {
	for _, pod := range l.Pods {
		if pod.Labels["app"] == app {
			visit(pod)
		}
	}
}

// moveInside puts all pods of an app on a node of the zone.
func (l *Loss) moveInside(app string) {
	l.each(app, func(pod *corev1.Pod) { pod.Spec.NodeName = "node-a1" })
}

// publish gives the Services the endpoints that Kubernetes would, in two families.
func (l *Loss) publish() {
	addresses := map[string]string{}
	for _, node := range l.Nodes {
		addresses[node.Name] = node.Status.Addresses[0].Address
	}
	for _, service := range l.Services {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name, Labels: map[string]string{discoveryv1.LabelServiceName: service.Name}}}
		for _, pod := range l.Pods {
			switch {
			case service.Name == "kubernetes" && pod.Labels["component"] == "kube-apiserver":
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{addresses[pod.Spec.NodeName]}})
			case pod.Namespace == service.Namespace && pod.Labels["app"] == service.Spec.Selector["app"]:
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{"10.1.0." + pod.Name}, NodeName: &pod.Spec.NodeName, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod.Name},
					Conditions: discoveryv1.EndpointConditions{Ready: new(len(pod.Status.Conditions) > 0)},
				})
			}
		}
		l.Slices = append(l.Slices, slice)
		if len(service.Spec.Selector) > 0 {
			l.Slices = append(l.Slices, slice)
		}
	}
}

// Each change alone has exactly its findings: identifier, object, and a part of the sentence or of the command.
func TestRehearse(t *testing.T) {
	type change func(*Loss)
	constraint := func(set func(*corev1.TopologySpreadConstraint)) change {
		return func(l *Loss) {
			l.each("web", func(pod *corev1.Pod) { set(&pod.Spec.TopologySpreadConstraints[0]) })
		}
	}
	others := func(set func(*corev1.Node)) change { // the nodes outside the zone with room for web
		return func(l *Loss) {
			for _, node := range l.Nodes {
				if node.Name[5] != 'a' && node.Name[6] >= '3' {
					set(node)
				}
			}
		}
	}
	onlyZone := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"zone-a"}},
	}}}}
	noRoom := []string{"lose-no-room Zone zone-a: 2 lost pods find no room on the other nodes (shop/web-18, shop/web-19), with requests of 4 CPUs and 1 GiB."}
	zonesCount := []string{"lose-spread-deadlock Deployment shop/web: 2 lost pods of Deployment shop/web stay pending: its topologySpreadConstraints allow at most 1 pod in a domain of topology.kubernetes.io/zone, since zone-a has 0."}
	twoHooks := func(what string) []string {
		return []string{
			"lose-webhook MutatingWebhookConfiguration certs: " + what, "lose-webhook ValidatingWebhookConfiguration certs: " + what,
		}
	}
	for _, test := range []struct {
		name   string
		change change
		want   []string
	}{
		{"a clean cluster", func(*Loss) {}, nil},
		{"terminating pods have replacements", func(l *Loss) {
			others(func(node *corev1.Node) { node.Spec.Unschedulable = true })(l)
			l.each("web", func(pod *corev1.Pod) {
				if pod.Spec.NodeName[5] == 'a' {
					pod.DeletionTimestamp = new(metav1.NewTime(now))
				}
			})
		}, nil},
		{"finished pods are no pods", func(l *Loss) {
			l.run("Deployment", "shop", "done", "1", "node-a1")
			l.Pods[len(l.Pods)-1].Status.Phase = corev1.PodSucceeded
		}, nil},

		{"the lost zone counts", constraint(func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = nil }), zonesCount},
		{"pods tolerate the taint of the lost nodes", func(l *Loss) {
			l.each("web", func(pod *corev1.Pod) {
				pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			})
		}, zonesCount},
		{"some of them fit", func(l *Loss) {
			constraint(func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy, c.MaxSkew = nil, 3 })(l)
			l.run("Deployment", "shop", "web", "100m", "node-a4", "node-a4")
			template := l.Pods[18].Spec.TopologySpreadConstraints
			l.each("web", func(pod *corev1.Pod) { pod.Spec.TopologySpreadConstraints = template })
			l.Bound = 100
		}, []string{"lose-spread-deadlock Deployment shop/web: 2 lost pods of Deployment shop/web stay pending: its topologySpreadConstraints allow at most 3 pods in a domain of"}},
		{"the others are of another template", func(l *Loss) {
			constraint(func(c *corev1.TopologySpreadConstraint) {
				c.NodeTaintsPolicy, c.MatchLabelKeys = nil, []string{"pod-template-hash"}
			})(l)
			l.each("web", func(pod *corev1.Pod) {
				if pod.Spec.NodeName[5] != 'a' {
					pod.Labels["pod-template-hash"], pod.OwnerReferences[0].Name = "77aa", "web-77aa"
				}
			})
		}, nil},
		{"the affinity leaves the lost zone out", func(l *Loss) {
			constraint(func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = nil })(l)
			l.each("web", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"new": "true"} })
			for _, node := range l.Nodes[4:] {
				node.Labels["new"] = "true"
			}
		}, nil},
		{"the affinity does not count", func(l *Loss) {
			ignore := corev1.NodeInclusionPolicyIgnore
			constraint(func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy, c.NodeAffinityPolicy = nil, &ignore })(l)
			l.each("web", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"new": "true"} })
			for _, node := range l.Nodes[4:] {
				node.Labels["new"] = "true"
			}
		}, zonesCount},
		{"pods of another namespace", func(l *Loss) {
			constraint(func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy, c.MaxSkew = nil, 3 })(l)
			l.run("Deployment", "other", "web", "100m", "node-b1", "node-b1", "node-c1", "node-c1")
		}, nil},
		{"the lost nodes lack the key of another constraint", func(l *Loss) {
			for _, node := range l.Nodes[4:] {
				node.Labels["rack"] = node.Name
			}
			l.each("web", func(pod *corev1.Pod) {
				racks := pod.Spec.TopologySpreadConstraints[0]
				racks.TopologyKey, racks.MaxSkew = "rack", 5
				pod.Spec.TopologySpreadConstraints[0].NodeTaintsPolicy = nil
				pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, racks)
			})
		}, nil},
		{"terminating pods do not count", func(l *Loss) {
			constraint(func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = nil })(l)
			for _, pod := range l.Pods[20:22] {
				pod.DeletionTimestamp = new(metav1.NewTime(now))
			}
		}, []string{"lose-spread-deadlock Deployment shop/web: 1 lost pod of Deployment shop/web stays pending", "lose-budget-freezes PodDisruptionBudget shop/web: PodDisruptionBudget shop/web wants 4 healthy pods and keeps 2"}},
		{"a constraint that only scores", constraint(func(c *corev1.TopologySpreadConstraint) {
			c.NodeTaintsPolicy, c.WhenUnsatisfiable = nil, corev1.ScheduleAnyway
		}), nil},
		{"too few domains", constraint(func(c *corev1.TopologySpreadConstraint) { c.MinDomains = new(int32(3)) }), []string{
			"lose-spread-deadlock Deployment shop/web: 2 lost pods of Deployment shop/web stay pending: its topologySpreadConstraints allow at most 1 pod in a domain of topology.kubernetes.io/zone, since minDomains is 3 and 2 domains are left.",
		}},
		{"anti-affinity by zone", func(l *Loss) {
			l.each("db", func(pod *corev1.Pod) {
				pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = corev1.LabelTopologyZone
			})
		}, []string{"lose-anti-affinity StatefulSet data/db: 1 lost pod of StatefulSet data/db stays pending: its required pod anti-affinity by topology.kubernetes.io/zone excludes each node outside the zone. kubectl get statefulset/db -n data -o jsonpath='{.spec.template.spec.affinity.podAntiAffinity}'"}},
		{"anti-affinity to pods of another namespace", func(l *Loss) {
			l.each("db", func(pod *corev1.Pod) {
				term := &pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
				term.TopologyKey, term.Namespaces = corev1.LabelTopologyZone, []string{"shop"}
			})
		}, nil},
		{"a node selector", func(l *Loss) {
			l.each("web", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "zone-a"} })
		}, []string{"lose-pinned Deployment shop/web: 2 lost pods of Deployment shop/web stay pending: its node selector"}},
		{"a volume of the zone", func(l *Loss) {
			l.Volumes[0].Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: onlyZone}
		}, []string{"lose-volume StatefulSet data/db: 1 lost pod of StatefulSet data/db stays pending: no node outside the zone reaches PersistentVolume pv-db-24 of its claim data-db-24. kubectl get pvc -n data"}},
		{"other nodes are cordoned", others(func(node *corev1.Node) { node.Spec.Unschedulable = true }), noRoom},
		{"other nodes are tainted", others(func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
		}), noRoom},
		{"other nodes are small", others(func(node *corev1.Node) { node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("2") }), noRoom},
		{"other nodes are full of pods", func(l *Loss) {
			for _, node := range l.Nodes[4:] {
				node.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1")
			}
		}, []string{"lose-no-room Zone zone-a: 5 lost pods find no room"}},
		{"init containers need more", func(l *Loss) {
			l.each("web", func(pod *corev1.Pod) {
				pod.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("6")}}}}
			})
		}, []string{"lose-no-room Zone zone-a: 2 lost pods find no room on the other nodes (shop/web-18, shop/web-19), with requests of 12 CPUs"}},

		{"a majority in the zone", func(l *Loss) { l.Pods[25].Spec.NodeName = "node-a4" }, []string{
			"lose-quorum StatefulSet data/db: StatefulSet data/db keeps 1 of 3 members ready",
		}},
		{"no majority before", func(l *Loss) { l.Pods[25].Status.Conditions, l.Pods[26].Status.Conditions = nil, nil }, []string{
			"lose-service-alone Service data/db: Service data/db loses its only ready endpoint.",
		}},
		{"etcd in the zone", func(l *Loss) {
			for _, pod := range l.Pods {
				if pod.Labels["component"] == "etcd" && pod.Spec.NodeName == "node-b1" {
					pod.Spec.NodeName = "node-a2"
				}
			}
		}, []string{"lose-quorum StaticPods kube-system/etcd: StaticPods kube-system/etcd keeps 1 of 3 members"}},
		{"API servers in the zone", func(l *Loss) { l.moveInside("kube-apiserver") }, []string{"lose-control-plane Zone zone-a: The cluster loses all 3 API servers."}},
		{"a DNS server in the zone", func(l *Loss) { l.moveInside("dns") }, []string{"lose-dns Service kube-system/dns: Service kube-system/dns loses all 3 ready endpoints."}},
		{"webhooks in the zone", func(l *Loss) { l.moveInside("hook") }, twoHooks("Service certs/hook loses all 3 ready endpoints; writes for the webhook hook.certs are refused.")},
		{"only webhooks in the zone are ready", func(l *Loss) {
			l.each("hook", func(pod *corev1.Pod) {
				if pod.Spec.NodeName != "node-a1" {
					pod.Status.Conditions = nil
				}
			})
		}, twoHooks("Service certs/hook loses its only ready endpoint;")},
		{"webhooks that may fail", func(l *Loss) {
			l.moveInside("hook")
			ignore := admissionregistrationv1.Ignore
			for i := range l.Webhooks {
				l.Webhooks[i].Webhooks[0].FailurePolicy = &ignore
			}
			l.Webhooks[1].Webhooks[0].TimeoutSeconds = new(int32(3))
		}, []string{
			"lose-webhook-slow MutatingWebhookConfiguration certs: Service certs/hook loses all 3 ready endpoints; each write for the webhook hook.certs waits up to 10 s.",
			"lose-webhook-slow ValidatingWebhookConfiguration certs: Service certs/hook loses all 3 ready endpoints; each write for the webhook hook.certs waits up to 3 s.",
		}},

		{"a Service in the zone", func(l *Loss) {
			l.run("Deployment", "shop", "cart", "1", "node-a3")
			l.Services = append(l.Services, aService("shop", "cart", nil))
		}, []string{"lose-service-alone Service shop/cart: Service shop/cart loses its only ready endpoint. kubectl get pods -o wide -n shop -l app=cart"}},
		{"a workload in the zone", func(l *Loss) { l.run("StatefulSet", "shop", "mail", "1", "node-a3", "node-a4") }, []string{
			"lose-workload-alone StatefulSet shop/mail: StatefulSet shop/mail loses all 2 ready pods.",
		}},
		{"a Job in the zone", func(l *Loss) { l.run("Job", "shop", "report", "1", "node-a3") }, nil},
		{"overload", func(l *Loss) {
			l.run("Deployment", "shop", "web", "100m", "node-a3")
			l.Autoscalers = nil
		}, []string{"lose-overload Service shop/web: Each of 4 ready endpoints of Service shop/web outside the zone gets 75 % more traffic, above 50 %; 6 are needed there. kubectl -n shop scale deployment/web --replicas=11"}},
		{"overload below an autoscaler", func(l *Loss) { l.run("Deployment", "shop", "web", "100m", "node-a3") }, []string{
			`lose-overload Service shop/web: Each of 4 ready endpoints of Service shop/web outside the zone gets 75 % more traffic, above 50 %; 6 are needed there. kubectl -n shop patch hpa web -p '{"spec":{"minReplicas":11}}'`,
		}},
		{"overload of two workloads", func(l *Loss) {
			l.run("Deployment", "shop", "canary", "100m", "node-a3")
			l.each("canary", func(pod *corev1.Pod) { pod.Labels["app"] = "web" })
		}, []string{
			"lose-workload-alone Deployment shop/canary: ",
			"lose-overload Service shop/web: Each of 4 ready endpoints of Service shop/web outside the zone gets 75 % more traffic, above 50 %; 6 are needed there. kubectl get pods -o wide -n shop -l app=web",
		}},
		{"overload of endpoints that are no pods", func(l *Loss) {
			external := aService("shop", "external", nil)
			external.Spec.Selector = nil
			l.Services = append(l.Services, external)
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: "external"}}}
			for i, zone := range []string{"zone-a", "zone-a", "zone-b"} {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("192.0.2.%d", i)}, Zone: &zone})
			}
			l.Slices = append(l.Slices, slice)
		}, nil},
		{"a bound for more", func(l *Loss) {
			l.run("Deployment", "shop", "web", "100m", "node-a3")
			l.Bound = 75
		}, nil},
		{"an autoscaler below the need", func(l *Loss) {
			l.run("Deployment", "shop", "web", "100m", "node-a3")
			l.Autoscalers[0].Spec.MaxReplicas = 10
		}, []string{"lose-overload Service shop/web: ", `lose-hpa-at-maximum HorizontalPodAutoscaler shop/web: maxReplicas of HorizontalPodAutoscaler shop/web is 10, and Deployment shop/web needs 11 to lose the zone without overload. kubectl -n shop patch hpa web -p '{"spec":{"maxReplicas":11}}'`}},
		{"an autoscaler at its maximum", func(l *Loss) { l.Autoscalers[0].Spec.MaxReplicas = 6 }, []string{
			`lose-hpa-at-maximum HorizontalPodAutoscaler shop/web: HorizontalPodAutoscaler shop/web is at its maximum of 6 replicas. kubectl -n shop patch hpa web -p '{"spec":{"maxReplicas":8}}'`,
		}},
		{"a budget for more pods", func(l *Loss) { l.PDBs[0].Status.DesiredHealthy = 5 }, []string{
			"lose-budget-freezes PodDisruptionBudget shop/web: PodDisruptionBudget shop/web wants 5 healthy pods and keeps 4, so it allows no eviction, also not of its 2 pods in the zone.",
		}},
		{"a budget that lets unhealthy pods go", func(l *Loss) {
			always := policyv1.AlwaysAllow
			l.PDBs[0].Status.DesiredHealthy, l.PDBs[0].Spec.UnhealthyPodEvictionPolicy = 5, &always
		}, []string{"lose-budget-freezes PodDisruptionBudget shop/web: PodDisruptionBudget shop/web wants 5 healthy pods and keeps 4, so it allows no eviction."}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := losable()
			test.change(l)
			l.publish()
			report, err := Rehearse(l)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range report.Findings {
				got = append(got, fmt.Sprintf("%s %s: %s %s", f.ID, f.Object, f.What, f.Next))
				rehearsed[f.check] = true
			}
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
	for c := loseControlPlane; c < check(len(catalogue)); c++ {
		if !rehearsed[c] {
			t.Errorf("no change has the finding %s", c)
		}
	}
}

// rehearsed are the checks with a finding in TestRehearse.
var rehearsed = map[check]bool{}

// The control plane can be outside of the cluster, or known by the endpoints of its Service only.
func TestRehearseWithoutStaticPods(t *testing.T) {
	for address, want := range map[string]bool{"10.0.0.1": true, "10.0.1.1": false, "192.0.2.1": false} {
		l := losable()
		l.Pods = slices.DeleteFunc(l.Pods, func(pod *corev1.Pod) bool { return pod.Labels["component"] != "" })
		l.publish()
		l.Slices[len(l.Slices)-1].Endpoints = []discoveryv1.Endpoint{{Addresses: []string{address}}}
		report, err := Rehearse(l)
		if err != nil || (len(report.Findings) == 1 && report.Findings[0].check == loseControlPlane) != want {
			t.Errorf("%s: %v, %+v", address, err, report)
		}
	}
}

func TestLossSummary(t *testing.T) {
	l := losable()
	l.Nodes[11].Spec.Unschedulable = true
	report, err := Rehearse(l)
	if err != nil {
		t.Fatal(err)
	}
	// 7 nodes have 28 CPUs and 56 GiB. 21 pods there request 10.5 CPUs and 10.5 GiB.
	const want = "If zone \"zone-a\" goes now: 4 of 12 nodes and 12 of 34 pods are lost.\n" +
		"5 pods must move, with requests of 4.7 CPUs and 2.5 GiB. The other nodes have 17.5 CPUs and 45.5 GiB free.\n"
	if got := report.Loss.Lines(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRehearseRefusesZones(t *testing.T) {
	for _, test := range []struct {
		zone   string
		change func(*Loss)
		want   string
	}{
		{"zone-x", func(*Loss) {}, `zone "zone-x" has no node; the zones are zone-a, zone-b and zone-c`},
		{"zone-a", func(l *Loss) { l.Nodes = l.Nodes[:4] }, `zone "zone-a" is the only zone, so nothing is left without it`},
		{"zone-a", func(l *Loss) { l.Nodes = nil }, "no node has the label topology.kubernetes.io/zone, so there is no zone to lose"},
	} {
		l := losable()
		l.Zone = test.zone
		test.change(l)
		if report, err := Rehearse(l); report != nil || err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}

// A kind that is unread causes no finding, and a sentence.
func TestRehearseWithoutKinds(t *testing.T) {
	for source := range lossConsequences {
		l := losable()
		l.publish()
		l.Unread[source] = "you may not list it"
		map[Source]func(){
			"services": func() { l.Services = nil }, "endpointslices": func() { l.Slices = nil }, "persistentvolumes": func() { l.Volumes = nil },
			"persistentvolumeclaims": func() { l.Claims = nil }, "poddisruptionbudgets": func() { l.PDBs = nil }, "horizontalpodautoscalers": func() { l.Autoscalers = nil },
			"mutatingwebhookconfigurations": func() { l.Webhooks = l.Webhooks[1:] }, "validatingwebhookconfigurations": func() { l.Webhooks = l.Webhooks[:1] },
		}[source]()
		report, err := Rehearse(l)
		if err != nil || len(report.Findings) > 0 || len(report.NotKnown) != 1 || !strings.HasSuffix(report.NotKnown[0], ": you may not list it") {
			t.Errorf("%s: %v, %+v", source, err, report)
		}
	}
}

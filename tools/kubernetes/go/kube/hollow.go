package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	hollowWorkers       = 8
	hollowLeaseSeconds  = 40
	hollowRenewInterval = 10 * time.Second
)

// hollowNodes are nodes without a runtime: every pod bound to one is reported as running with
// the resources of its spec, follows resizes at once, and is removed when it is deleted.
type hollowNodes struct {
	client   kubernetes.Interface
	nodes    map[string]string // name to address
	capacity corev1.ResourceList
	pods     corelisters.PodLister
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func newHollowNodesCommand() *cobra.Command {
	var kubeconfig, cpu, memory string
	var count int
	command := &cobra.Command{
		Use:           "hollow-nodes",
		Short:         "Register nodes that report pods as running without running them",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			config.QPS, config.Burst = 500, 1000
			config.UserAgent = "hollow-nodes"
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			capacity := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1000")}
			for name, quantity := range map[corev1.ResourceName]string{
				corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory,
			} {
				if capacity[name], err = resource.ParseQuantity(quantity); err != nil {
					return fmt.Errorf("%s %q: %w", name, quantity, err)
				}
			}
			nodes := map[string]string{}
			for i := range count {
				nodes[fmt.Sprintf("hollow-%d", i+1)] = fmt.Sprintf("100.127.%d.%d", i/250, i%250+1)
			}
			return (&hollowNodes{client: client, nodes: nodes, capacity: capacity}).run(context.Background())
		},
	}
	flags := command.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of an administrator")
	flags.IntVar(&count, "count", 1, "number of nodes")
	flags.StringVar(&cpu, "cpu", "64", "CPUs of each node")
	flags.StringVar(&memory, "memory", "512Gi", "memory of each node")
	return command
}

func (h *hollowNodes) run(ctx context.Context) error {
	for name, address := range h.nodes {
		if err := h.register(ctx, name, address); err != nil {
			return fmt.Errorf("register %s: %w", name, err)
		}
	}
	go wait.UntilWithContext(ctx, h.renewLeases, hollowRenewInterval)

	h.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	factory := informers.NewSharedInformerFactory(h.client, 0)
	informer := factory.Core().V1().Pods()
	h.pods = informer.Lister()
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { h.enqueue(object) },
		UpdateFunc: func(_, object any) { h.enqueue(object) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range hollowWorkers {
		go h.work(ctx)
	}
	<-ctx.Done()
	return nil
}

// register creates one node with its lease, or adopts those of an earlier run.
func (h *hollowNodes) register(ctx context.Context, name, address string) error {
	if err := h.renewLease(ctx, name); err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		"type": "hollow",
	}}}
	_, err := h.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// The node controllers write taints and labels of a new node at the same time.
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		return h.reportReady(ctx, name, address)
	})
}

func (h *hollowNodes) reportReady(ctx context.Context, name, address string) error {
	node, err := h.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now := metav1.Now()
	node.Status.Capacity, node.Status.Allocatable = h.capacity, h.capacity
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: name},
	}
	node.Status.Conditions = nil
	for conditionType, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse,
		corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
	} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: conditionType, Status: status, Reason: "Hollow",
			LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	_, err = h.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func (h *hollowNodes) renewLeases(ctx context.Context) {
	for name := range h.nodes {
		if err := h.renewLease(ctx, name); err != nil {
			klog.ErrorS(err, "renew lease", "node", name)
		}
	}
}

func (h *hollowNodes) renewLease(ctx context.Context, name string) error {
	leases := h.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	seconds, now := int32(hollowLeaseSeconds), metav1.NowMicro()
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	}
	lease.Spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

func (h *hollowNodes) enqueue(object any) {
	pod := object.(*corev1.Pod)
	if _, ours := h.nodes[pod.Spec.NodeName]; ours {
		h.queue.Add(cache.MetaObjectToName(pod))
	}
}

func (h *hollowNodes) work(ctx context.Context) {
	for {
		key, shutdown := h.queue.Get()
		if shutdown {
			return
		}
		if err := h.sync(ctx, key); err != nil && !apierrors.IsNotFound(err) {
			if !apierrors.IsConflict(err) {
				klog.ErrorS(err, "sync pod", "pod", key)
			}
			h.queue.AddRateLimited(key)
		} else {
			h.queue.Forget(key)
		}
		h.queue.Done(key)
	}
}

// sync does for one pod what a kubelet would report.
func (h *hollowNodes) sync(ctx context.Context, key cache.ObjectName) error {
	pod, err := h.pods.Pods(key.Namespace).Get(key.Name)
	if err != nil {
		return err
	}
	pods := h.client.CoreV1().Pods(key.Namespace)
	if pod.DeletionTimestamp != nil {
		now := int64(0)
		return pods.Delete(ctx, key.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	updated := pod.DeepCopy()
	updated.Status = hollowStatus(pod, h.nodes[pod.Spec.NodeName])
	if apiequality.Semantic.DeepEqual(updated.Status, pod.Status) {
		return nil
	}
	_, err = pods.UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	return err
}

// hollowStatus returns the status of a pod all of whose containers run.
func hollowStatus(pod *corev1.Pod, hostIP string) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.Phase, status.ObservedGeneration = corev1.PodRunning, pod.Generation
	if status.StartTime == nil {
		now := metav1.Now()
		status.StartTime = &now
	}
	status.HostIP, status.HostIPs = hostIP, []corev1.HostIP{{IP: hostIP}}
	status.PodIP = podAddress(pod)
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	status.ContainerStatuses, status.InitContainerStatuses = nil, nil
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(
			status.ContainerStatuses, containerStatus(container, *status.StartTime, true))
	}
	for _, container := range pod.Spec.InitContainers {
		sidecar := container.RestartPolicy != nil
		status.InitContainerStatuses = append(
			status.InitContainerStatuses, containerStatus(container, *status.StartTime, sidecar))
	}
	ready := corev1.ConditionTrue
	for _, gate := range pod.Spec.ReadinessGates {
		if !conditionIsTrue(status.Conditions, gate.ConditionType) {
			ready = corev1.ConditionFalse
		}
	}
	for _, conditionType := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady,
	} {
		setCondition(&status, conditionType, corev1.ConditionTrue, pod.Generation)
	}
	setCondition(&status, corev1.PodReady, ready, pod.Generation)
	return status
}

func containerStatus(container corev1.Container, since metav1.Time, running bool) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, ImageID: container.Image,
		ContainerID: "hollow://" + container.Name, Ready: true, Started: &running,
		AllocatedResources: container.Resources.Requests.DeepCopy(),
		Resources:          container.Resources.DeepCopy(),
	}
	if running {
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: since}
	} else {
		status.State.Terminated = &corev1.ContainerStateTerminated{
			Reason: "Completed", StartedAt: since, FinishedAt: since}
	}
	return status
}

func conditionIsTrue(conditions []corev1.PodCondition, conditionType corev1.PodConditionType) bool {
	for _, condition := range conditions {
		if condition.Type == conditionType {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func setCondition(
	status *corev1.PodStatus, conditionType corev1.PodConditionType,
	value corev1.ConditionStatus, generation int64,
) {
	condition := corev1.PodCondition{
		Type: conditionType, Status: value, ObservedGeneration: generation,
		LastTransitionTime: metav1.Now(),
	}
	for i, existing := range status.Conditions {
		if existing.Type == conditionType {
			if existing.Status == value {
				condition.LastTransitionTime = existing.LastTransitionTime
			}
			status.Conditions[i] = condition
			return
		}
	}
	status.Conditions = append(status.Conditions, condition)
}

// podAddress derives an address from the pod's uid; nothing listens on it.
func podAddress(pod *corev1.Pod) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pod.UID))
	sum := hash.Sum32()
	return fmt.Sprintf("100.%d.%d.%d", 64+sum>>16%32, sum>>8&0xff, sum&0xff)
}

package main

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const eventsGroup = eventsv1.GroupName

// shareEvents makes the events of both groups the same objects: in memory and in etcd they are those of the core group.
func shareEvents(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(schema.GroupVersion{Group: eventsGroup, Version: runtime.APIVersionInternal},
		&corev1.Event{}, &corev1.EventList{})
	for _, add := range []func(*runtime.Scheme) error{
		conversionOf(func(in *corev1.Event, out *eventsv1.Event) { *out = newEvent(in) }),
		conversionOf(func(in *eventsv1.Event, out *corev1.Event) { *out = oldEvent(in) }),
		conversionOf(func(in *corev1.EventList, out *eventsv1.EventList) {
			out.ListMeta = in.ListMeta
			out.Items = make([]eventsv1.Event, len(in.Items))
			for i := range in.Items {
				out.Items[i] = newEvent(&in.Items[i])
			}
		}),
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	return nil
}

// conversionOf registers how one type becomes another.
func conversionOf[From, To any](convert func(*From, *To)) func(*runtime.Scheme) error {
	return func(scheme *runtime.Scheme) error {
		untyped := func(in, out any, _ conversion.Scope) error {
			convert(in.(*From), out.(*To))
			return nil
		}
		return scheme.AddConversionFunc(new(From), new(To), untyped)
	}
}

func newEvent(e *corev1.Event) eventsv1.Event {
	out := eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, Action: e.Action, Reason: e.Reason, Type: e.Type,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Regarding: e.InvolvedObject, Related: e.Related, Note: e.Message,
		DeprecatedSource: e.Source, DeprecatedCount: e.Count,
		DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp,
	}
	if e.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

func oldEvent(e *eventsv1.Event) corev1.Event {
	out := corev1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, Action: e.Action, Reason: e.Reason, Type: e.Type,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		InvolvedObject: e.Regarding, Related: e.Related, Message: e.Note,
		Source: e.DeprecatedSource, Count: e.DeprecatedCount,
		FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

func eventFields(object runtime.Object) fields.Set {
	e, ok := object.(*corev1.Event)
	if !ok {
		e = &corev1.Event{}
	}
	return fields.Set{
		"involvedObject.kind": e.InvolvedObject.Kind, "involvedObject.namespace": e.InvolvedObject.Namespace,
		"involvedObject.name": e.InvolvedObject.Name, "involvedObject.uid": string(e.InvolvedObject.UID),
		"reason": e.Reason, "type": e.Type, "reportingComponent": e.ReportingController,
	}
}

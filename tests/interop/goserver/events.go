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
	type convert = func(in, out any, scope conversion.Scope) error
	for _, c := range []struct {
		from, to any
		convert  convert
	}{
		{&corev1.Event{}, &eventsv1.Event{}, func(in, out any, _ conversion.Scope) error {
			*out.(*eventsv1.Event) = newEvent(in.(*corev1.Event))
			return nil
		}},
		{&eventsv1.Event{}, &corev1.Event{}, func(in, out any, _ conversion.Scope) error {
			*out.(*corev1.Event) = oldEvent(in.(*eventsv1.Event))
			return nil
		}},
		{&corev1.EventList{}, &eventsv1.EventList{}, func(in, out any, _ conversion.Scope) error {
			from, to := in.(*corev1.EventList), out.(*eventsv1.EventList)
			to.ListMeta = from.ListMeta
			to.Items = make([]eventsv1.Event, len(from.Items))
			for i := range from.Items {
				to.Items[i] = newEvent(&from.Items[i])
			}
			return nil
		}},
	} {
		if err := scheme.AddConversionFunc(c.from, c.to, c.convert); err != nil {
			return err
		}
	}
	return nil
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

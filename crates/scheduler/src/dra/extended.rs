//! The extended resource claim behind extended resources: which requests it has, and which container uses which of them.

use k8s_openapi::api::core::v1::{Container, ContainerExtendedResourceRequest};
use k8s_openapi::api::resource::v1::{DeviceRequest, ExactDeviceRequest};

use crate::pod::PodInfo;
use crate::resources::whole;

/// Name of the extended resource claim while it exists only in memory.
pub const IN_MEMORY_NAME: &str = "<extended-resources>";

/// The requests of the extended resource claim, and the containers that use them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Requests {
    /// Requests, sorted by name.
    pub requests: Vec<DeviceRequest>,
    /// Which container uses which request for which resource.
    pub mappings: Vec<ContainerExtendedResourceRequest>,
}

struct User<'a> {
    index: usize,
    container: &'a Container,
    long_lived: bool,
}

/// Builds the requests for the given resources (name and class).
///
/// An init container that runs to completion before the others start shares its devices with later containers; only
/// what the largest of those lacks is requested in addition.
pub fn requests(pod: &PodInfo, resources: &[(String, String)]) -> Requests {
    let spec = pod.spec();
    let init = spec.init_containers.iter().flatten();
    let users: Vec<User<'_>> = init
        .map(|c| (c, c.restart_policy.as_deref() == Some("Always")))
        .chain(spec.containers.iter().map(|c| (c, true)))
        .enumerate()
        .map(|(index, (container, long_lived))| User {
            index,
            container,
            long_lived,
        })
        .collect();
    let mut out = Requests::default();
    for (resource, class) in resources {
        one_resource(&users, resource, class, &mut out);
    }
    out.requests.sort_by(|a, b| a.name.cmp(&b.name));
    out
}

fn amount(container: &Container, resource: &str) -> i64 {
    container
        .resources
        .as_ref()
        .and_then(|r| r.requests.as_ref()?.get(resource))
        .map_or(0, whole)
}

fn request_name(user: &User<'_>, resource: &str) -> String {
    // The index of the resource among those that the container requests, ordered by name.
    let names = user
        .container
        .resources
        .as_ref()
        .and_then(|r| r.requests.as_ref());
    let at = names
        .and_then(|n| n.keys().position(|k| k == resource))
        .unwrap_or(0);
    format!("container-{}-request-{at}", user.index)
}

fn one_resource(users: &[User<'_>], resource: &str, class: &str, out: &mut Requests) {
    let request = |name: &str, count: i64| DeviceRequest {
        name: name.to_owned(),
        exactly: Some(ExactDeviceRequest {
            device_class_name: class.to_owned(),
            allocation_mode: Some("ExactCount".to_owned()),
            count: Some(count),
            ..ExactDeviceRequest::default()
        }),
        ..DeviceRequest::default()
    };
    let mapping = |user: &User<'_>, name: &str| ContainerExtendedResourceRequest {
        container_name: user.container.name.clone(),
        request_name: name.to_owned(),
        resource_name: resource.to_owned(),
    };
    let lasting: Vec<(&User<'_>, i64, String)> = users
        .iter()
        .filter(|u| u.long_lived)
        .map(|u| (u, amount(u.container, resource), request_name(u, resource)))
        .filter(|(_, n, _)| *n > 0)
        .collect();
    for (user, n, name) in &lasting {
        out.requests.push(request(name, *n));
        out.mappings.push(mapping(user, name));
    }
    let passing: Vec<(&User<'_>, i64)> = users
        .iter()
        .filter(|u| !u.long_lived)
        .map(|u| (u, amount(u.container, resource)))
        .filter(|(_, n)| *n > 0)
        .collect();
    let lacks = |user: &User<'_>, n: i64| {
        n - lasting
            .iter()
            .filter(|(u, ..)| u.index >= user.index)
            .map(|(_, n, _)| n)
            .sum::<i64>()
    };
    let neediest = passing
        .iter()
        .map(|(u, n)| (*u, lacks(u, *n)))
        .filter(|(_, lack)| *lack > 0)
        .max_by_key(|(u, lack)| (*lack, std::cmp::Reverse(u.index)));
    let extra = neediest.map(|(user, lack)| {
        let name = request_name(user, resource);
        out.requests.push(request(&name, lack));
        name
    });
    for (user, n) in passing {
        let mut missing = n;
        for (_, amount, name) in lasting.iter().filter(|(u, ..)| u.index >= user.index) {
            if missing > 0 {
                out.mappings.push(mapping(user, name));
                missing -= amount;
            }
        }
        if let Some(name) = extra.as_ref().filter(|_| missing > 0) {
            out.mappings.push(mapping(user, name));
        }
    }
}

#[cfg(test)]
mod tests;

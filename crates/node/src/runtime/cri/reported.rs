//! What the runtime reports about a container, as the container's status shows it.

use allot_protos::cri_v1 as v1;
use k8s_openapi::api::core::v1::{ContainerUser, LinuxContainerUser};

use crate::events::shorten;
use crate::runtime::ReportedResources;

/// The user of a container; `None` if the runtime does not report it, as containerd before 2.0, or reports one that cannot be.
pub(super) fn user(status: &v1::ContainerStatus) -> Option<ContainerUser> {
    /// As many groups as the kernel permits.
    const MOST: usize = 65_536;
    let user = status.user.as_ref()?.linux.as_ref()?;
    // The API accepts no others.
    let valid = |id: &i64| (0..=i64::from(i32::MAX)).contains(id);
    if !valid(&user.uid) || !valid(&user.gid) {
        return None;
    }
    let groups = user.supplemental_groups.iter().filter(|it| valid(it));
    Some(ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: Some(groups.take(MOST).copied().collect()),
        }),
    })
}

/// What a container's image is called.
pub(super) fn image_id(status: &v1::ContainerStatus) -> String {
    shorten(status.image_ref.clone())
}

/// The resources of a container; `None` if the runtime reports none.
pub(super) fn given(status: &v1::ContainerStatus) -> Option<ReportedResources> {
    /// One CPU in shares, and in thousandths.
    const SHARES: i64 = 1024;
    const WHOLE: i64 = 1000;
    let told = status.resources.as_ref()?.linux.as_ref()?;
    let positive = |amount: i64| Some(amount).filter(|amount| *amount > 0);
    // Rounded up: the number of shares was rounded down.
    let request = told
        .cpu_shares
        .saturating_mul(WHOLE)
        .saturating_add(SHARES - 1)
        / SHARES;
    let period = positive(told.cpu_period);
    let limit = period.map(|period| told.cpu_quota.saturating_mul(WHOLE) / period);
    let given = ReportedResources {
        cpu_request: positive(request).filter(|_| told.cpu_shares > 1),
        cpu_limit: limit.and_then(positive),
        memory_limit: positive(told.memory_limit_in_bytes),
    };
    Some(given).filter(|given| *given != ReportedResources::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_runtime_become_amounts() {
        let check = |linux: v1::LinuxContainerResources, expected: Option<ReportedResources>| {
            let status = v1::ContainerStatus {
                resources: Some(v1::ContainerResources { linux: Some(linux) }),
                ..Default::default()
            };
            assert_eq!(given(&status), expected);
        };
        check(v1::LinuxContainerResources::default(), None);
        let whole = v1::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 20_000,
            cpu_shares: 102,
            memory_limit_in_bytes: 1 << 20,
            ..Default::default()
        };
        let expected = ReportedResources {
            cpu_request: Some(100),
            cpu_limit: Some(200),
            memory_limit: Some(1 << 20),
        };
        check(whole.clone(), Some(expected));
        // The least number of shares is that of a container without a request; no quota is none.
        let without = v1::LinuxContainerResources {
            cpu_quota: -1,
            cpu_shares: 2,
            memory_limit_in_bytes: 0,
            ..whole.clone()
        };
        let expected = ReportedResources {
            cpu_request: Some(2),
            ..ReportedResources::default()
        };
        check(without, Some(expected));
        // Numbers that no container can have do no harm.
        let hostile = v1::LinuxContainerResources {
            cpu_period: -1,
            cpu_quota: i64::MIN,
            cpu_shares: i64::MAX,
            memory_limit_in_bytes: i64::MIN,
            ..whole
        };
        let expected = ReportedResources {
            cpu_request: Some(i64::MAX / 1024),
            cpu_limit: None,
            memory_limit: None,
        };
        check(hostile, Some(expected));
        assert_eq!(given(&v1::ContainerStatus::default()), None);
    }

    #[test]
    fn the_user_is_told_with_its_groups() {
        let mut status = v1::ContainerStatus::default();
        assert_eq!(user(&status), None);
        let linux = v1::LinuxContainerUser {
            uid: 7,
            gid: 8,
            supplemental_groups: vec![8, 9],
        };
        status.user = Some(v1::ContainerUser { linux: Some(linux) });
        let told = user(&status).and_then(|user| user.linux).expect("a user");
        assert_eq!((told.uid, told.gid), (7, 8));
        assert_eq!(told.supplemental_groups, Some(vec![8, 9]));
        // A status with other IDs is refused as a whole.
        let linux = |uid, groups| v1::LinuxContainerUser {
            uid,
            gid: 0,
            supplemental_groups: groups,
        };
        let mut of = |linux| {
            status.user = Some(v1::ContainerUser { linux: Some(linux) });
            user(&status).and_then(|user| user.linux)
        };
        assert_eq!(of(linux(-1, vec![])), None);
        assert_eq!(of(linux(1 << 31, vec![])), None);
        let told = of(linux(7, vec![-1, 8, i64::MAX])).expect("a user");
        assert_eq!(told.supplemental_groups, Some(vec![8]));
    }
}

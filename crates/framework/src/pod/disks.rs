//! Disks that pods name themselves, without a claim: GCE, AWS, iSCSI and RBD.

use k8s_openapi::api::core::v1::{Pod, Volume};

/// A disk that a pod names itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    kind: Kind,
    read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Gce {
        name: String,
    },
    /// Never shared, not even by pods that only read.
    Aws {
        volume: String,
    },
    Iscsi {
        iqn: String,
    },
    Rbd {
        monitors: Vec<String>,
        pool: String,
        image: String,
    },
}

impl Disk {
    /// The disks of a pod.
    pub fn all(pod: &Pod) -> Vec<Self> {
        let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
        volumes.filter_map(Self::of).collect()
    }

    fn of(volume: &Volume) -> Option<Self> {
        let disk = |kind, read_only: Option<bool>| Self {
            kind,
            read_only: read_only == Some(true),
        };
        if let Some(gce) = &volume.gce_persistent_disk {
            let name = gce.pd_name.clone();
            return Some(disk(Kind::Gce { name }, gce.read_only));
        }
        if let Some(aws) = &volume.aws_elastic_block_store {
            let volume = aws.volume_id.clone();
            return Some(disk(Kind::Aws { volume }, aws.read_only));
        }
        if let Some(iscsi) = &volume.iscsi {
            let iqn = iscsi.iqn.clone();
            return Some(disk(Kind::Iscsi { iqn }, iscsi.read_only));
        }
        let rbd = volume.rbd.as_ref()?;
        let kind = Kind::Rbd {
            monitors: rbd.monitors.clone(),
            pool: rbd.pool.clone().unwrap_or_else(|| "rbd".to_owned()),
            image: rbd.image.clone(),
        };
        Some(disk(kind, rbd.read_only))
    }

    /// Whether both cannot be used on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        let both_read = self.read_only && other.read_only;
        match (&self.kind, &other.kind) {
            (
                Kind::Rbd {
                    monitors,
                    pool,
                    image,
                },
                Kind::Rbd {
                    monitors: others,
                    pool: other_pool,
                    image: other_image,
                },
            ) => {
                let same = (pool, image) == (other_pool, other_image);
                same && !both_read && monitors.iter().any(|m| others.contains(m))
            }
            (Kind::Aws { .. }, _) => self.kind == other.kind,
            (own, other) => own == other && !both_read,
        }
    }
}

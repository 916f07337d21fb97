//! `kube::Resource` for the forms in which informers hold objects.

/// For a type whose kind is known only at run time; `metadata` is one of its fields.
macro_rules! dynamic {
    ([$($parameter:ident)?] $type:ty, $metadata:ident) => {
        impl$(<$parameter>)? ::kube::Resource for $type {
            type DynamicType = ::kube::core::ApiResource;
            type Scope = ::kube::core::DynamicResourceScope;

            fn kind(dt: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                dt.kind.as_str().into()
            }

            fn group(dt: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                dt.group.as_str().into()
            }

            fn version(dt: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                dt.version.as_str().into()
            }

            fn api_version(dt: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                dt.api_version.as_str().into()
            }

            fn plural(dt: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                dt.plural.as_str().into()
            }

            fn meta(&self) -> &::kube::core::ObjectMeta {
                &self.$metadata
            }

            fn meta_mut(&mut self) -> &mut ::kube::core::ObjectMeta {
                &mut self.$metadata
            }
        }
    };
}

/// For a wrapper with one type parameter, which is the resource that the field `inner` holds.
macro_rules! like_inner {
    ($type:ident, $inner:tt) => {
        impl<K: ::kube::Resource> ::kube::Resource for $type<K> {
            type DynamicType = K::DynamicType;
            type Scope = K::Scope;

            fn kind(dt: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                K::kind(dt)
            }

            fn group(dt: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                K::group(dt)
            }

            fn version(dt: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                K::version(dt)
            }

            fn plural(dt: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                K::plural(dt)
            }

            fn meta(&self) -> &::kube::core::ObjectMeta {
                self.$inner.meta()
            }

            fn meta_mut(&mut self) -> &mut ::kube::core::ObjectMeta {
                self.$inner.meta_mut()
            }
        }
    };
}

pub(crate) use {dynamic, like_inner};

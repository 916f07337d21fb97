//! Folds functions with identical code in the released program: the same generic code, compiled in several crates, is
//! about a fifth of it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |key: &str, value: &str| std::env::var(key).is_ok_and(|it| it == value);
    // Rust's default linker on this target is lld, which supports the option; another one might not.
    let own_linker = std::env::var_os("RUSTC_LINKER").is_none()
        && std::env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| !flags.contains("link"));
    if own_linker
        && is("PROFILE", "release")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

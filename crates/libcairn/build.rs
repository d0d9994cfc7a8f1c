//! What the linker has to know of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Its threads may outlive whoever loaded it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcairn.so.0");
}

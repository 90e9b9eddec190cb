//! Makes mimalloc the allocator of the program that links this.
//!
//! A package of its own because what is called for each allocation is compiled, and optimised, where the allocator is named.

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

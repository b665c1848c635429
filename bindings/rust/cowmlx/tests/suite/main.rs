//! The crate against the library and a real model, all in one process and on many threads.

mod adapters;
mod arrays;
mod builder;
mod callbacks;
mod cancelling;
mod chats;
mod contexts;
mod embeddings;
mod errors;
mod events;
mod generations;
mod media;
mod models;
mod ownership;
mod programs;
mod rankings;
#[cfg(feature = "stream")]
mod streams;
mod support;
mod trainings;

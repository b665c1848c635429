#![doc = include_str!("../README.md")]

mod adapter;
mod array;
mod buffer;
mod callback;
mod cancel;
mod chat;
mod context;
mod element;
mod embedding;
mod error;
mod generation;
mod generation_params;
mod library;
mod model;
mod owner;
mod params;
mod program;
mod runtime;
#[cfg(feature = "stream")]
mod stream;
mod text;

pub use adapter::Adapter;
pub use array::{Array, MAX_RANK};
pub use cancel::CancelHandle;
pub use chat::Event;
pub use context::{Checkpoint, Context, ContextParams, Overflow};
pub use cowmlx_sys as sys;
pub use element::{Bf16, Complex64, Dtype, Element, F16};
pub use embedding::{EmbedParams, Embeddings, Pooling};
pub use error::{Error, Result, Status};
pub use generation::{Finish, Generation, Piece, Stats, TokenLogprob};
pub use generation_params::{GenerationParams, Grammar};
#[cfg(feature = "dlopen")]
pub use library::load_library;
pub use library::version;
pub use model::{Activations, Model, ModelParams, Special, Token};
pub use owner::Owner;
pub use program::{Input, Output, Program, RunParams};
pub use runtime::{LogLevel, Runtime, RuntimeParams};
#[cfg(feature = "stream")]
pub use stream::{EventStream, PieceStream};

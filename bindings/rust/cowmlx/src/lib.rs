#![doc = include_str!("../README.md")]

mod adapter;
mod array;
mod array_operators;
mod attributes;
mod builder;
mod callback;
mod chat;
mod context;
mod element;
mod error;
mod generation;
mod graph;
mod later;
mod library;
mod media;
#[rustfmt::skip]
mod methods;
mod model;
mod names;
pub mod operations;
pub mod ops;
mod owner;
mod params;
mod program;
#[rustfmt::skip]
mod records;
mod rows;
mod runtime;
#[cfg(feature = "stream")]
mod stream;
mod training;
mod transfer;
mod value;

pub use adapter::Adapter;
pub use array::{Array, MAX_RANK};
pub use array_operators::ArrayOperand;
pub use attributes::{Dim, Dims, IntList, Ints, Pairs};
pub use builder::{Function, ProgramBuilder};
pub use chat::Event;
pub use context::{CancelHandle, Checkpoint, Context};
pub use cowmlx_sys as sys;
pub use element::{Bf16, Complex64, Dtype, Element, F16, Number};
pub use error::{Error, Result, Status};
pub use generation::{Generation, Piece, TokenLogprob};
pub use later::Loading;
#[cfg(feature = "dlopen")]
pub use library::load_library;
pub use library::version;
pub use media::Media;
pub use model::{Model, Special, Token};
pub use owner::Owner;
pub use params::{
    ContextParams, EmbedParams, FitParams, GenerationParams, Grammar, ModelParams, ProgramParams,
    RankParams, RunParams, RuntimeParams, TrainingParams,
};
pub use program::{Input, Output, Program};
pub use records::{
    Activations, Finish, FitEnd, LogLevel, Overflow, Pooling, QuantizedFormat, Split, Stats,
    TrainingEvent, TrainingEventKind,
};
pub use rows::{Embeddings, Scores};
pub use runtime::Runtime;
#[cfg(feature = "stream")]
pub use stream::{EventStream, PieceStream};
pub use training::Training;
pub use value::{Operand, Value, Values};

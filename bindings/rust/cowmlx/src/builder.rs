//! Programs as Rust writes them.

use std::cell::RefCell;
use std::fmt;

use crate::attributes::{Attributes, Dims, ToJson, list};
use crate::element::Number;
use crate::element::{Dtype, Element};
use crate::error::{Error, Result, Status};
use crate::graph::{Body, Graph, Id, MAX_RESULTS, Refused, Type};
use crate::owner::Owner;
use crate::program::Program;
use crate::runtime::Runtime;
use crate::value::{Given, Operand, Value};

/// Writes a program: its inputs, then operations on them, and at last its outputs.
///
/// The operations of the table are methods of [`Value`], and of the builder those that take no
/// array or any number of them. Bodies of control flow are closures, which may use any value around
/// them. The first thing that is wrong is an error of [`build`](Self::build): the library finds what is
/// wrong with an operation, then or where it is asked for a value's dtype and shape, for a number
/// beside the value and for what bodies take.
#[derive(Debug)]
pub struct ProgramBuilder<'r> {
    runtime: Owner<'r, Runtime>,
    graph: RefCell<Graph>,
}

/// A function of a program, which may be called any number of times.
#[derive(Clone)]
pub struct Function<'b> {
    builder: &'b ProgramBuilder<'b>,
    name: String,
    captured: Vec<Id>,
    results: usize,
}

impl fmt::Debug for Function<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Function").field(&self.name).finish()
    }
}

impl<'r> ProgramBuilder<'r> {
    /// A builder whose programs belong to a runtime.
    pub fn new(runtime: impl Into<Owner<'r, Runtime>>) -> Self {
        Self { runtime: runtime.into(), graph: RefCell::new(Graph::new()) }
    }

    /// Declare an input.
    pub fn input(&self, name: &str, dtype: Dtype, shape: impl Into<Dims>) -> Value<'_> {
        let of = typed(dtype, &shape.into());
        let made = self.graph.borrow_mut().declare(name, of, None);
        self.value(made)
    }

    /// Declare a parameter: an input after all inputs, which a training may change.
    pub fn parameter(&self, name: &str, dtype: Dtype, shape: impl Into<Dims>) -> Value<'_> {
        self.parameter_with(name, dtype, shape, "")
    }

    /// Declare a parameter with how it begins, as JSON, such as `"\"glorot_uniform\""`.
    pub fn parameter_with(
        &self,
        name: &str,
        dtype: Dtype,
        shape: impl Into<Dims>,
        init_json: &str,
    ) -> Value<'_> {
        let of = typed(dtype, &shape.into());
        let made = self.graph.borrow_mut().declare(name, of, Some(init_json));
        self.value(made)
    }

    /// An element as a constant of shape ().
    pub fn constant<T: Element>(&self, value: T) -> Value<'_> {
        self.value(Ok(self
            .graph
            .borrow_mut()
            .constant(typed(T::DTYPE, &Dims::default()), value.json())))
    }

    /// Elements in row-major order as a constant: exactly as many as the shape has. Large arrays
    /// are inputs rather than constants.
    pub fn constants<T: Element>(&self, values: &[T], shape: &[i64]) -> Value<'_> {
        if let Err(error) = crate::array::check_count("ProgramBuilder", values.len(), shape) {
            return self.failed(error);
        }
        let dims = Dims::from(shape);
        if values.is_empty() {
            // Lists of JSON cannot say such a shape.
            let mut attributes = Attributes::default();
            attributes.set("shape", &dims);
            attributes.set("dtype", &T::DTYPE);
            return self.emit("zeros", &[], &attributes, 1)[0];
        }
        let json = nested(values, shape);
        self.value(Ok(self.graph.borrow_mut().constant(typed(T::DTYPE, &dims), json)))
    }

    /// Write a function of values of the types that these have.
    pub fn function<'b>(
        &'b self,
        like: &[Value<'b>],
        body: impl FnOnce(&[Value<'b>]) -> Vec<Value<'b>>,
    ) -> Function<'b> {
        let types = self.types_or_any(like);
        let written = self.body(types, body);
        let mut graph = self.graph.borrow_mut();
        let captured = graph.captured(&[&written]);
        let name = graph.function(&written, &captured, false);
        Function { builder: self, name, captured, results: written.outputs.len() }
    }

    /// The results of a function.
    pub fn call<'b>(&'b self, function: &Function<'b>, inputs: &[Value<'b>]) -> Vec<Value<'b>> {
        if !self.is(function.builder) {
            let sentence = "a function is of another program".into();
            return vec![self.value(Err(sentence)); function.results];
        }
        let mut attributes = Attributes::default();
        attributes.set("function", &function.name);
        self.control("call", inputs, &function.captured, &attributes, function.results)
    }

    /// The results of `then()` where a bool of shape () is true, or else of `otherwise()`, of the
    /// same types.
    pub fn cond<'b>(
        &'b self,
        predicate: Value<'b>,
        then: impl FnOnce() -> Vec<Value<'b>>,
        otherwise: impl FnOnce() -> Vec<Value<'b>>,
    ) -> Vec<Value<'b>> {
        let one = self.body(Vec::new(), |_| then());
        let other = self.body(Vec::new(), |_| otherwise());
        let mut attributes = Attributes::default();
        let captured = self.graph.borrow().captured(&[&one, &other]);
        for (name, body) in [("then", &one), ("else", &other)] {
            attributes.set(name, &self.graph.borrow_mut().function(body, &captured, false));
        }
        self.control("cond", &[predicate], &captured, &attributes, one.outputs.len())
    }

    /// The state for which `condition(state)`, a bool of shape (), is false; `body(state)` gives
    /// the next. A run that takes more rounds than `max_iterations` fails.
    pub fn while_loop<'b>(
        &'b self,
        state: &[Value<'b>],
        condition: impl FnOnce(&[Value<'b>]) -> Value<'b>,
        body: impl FnOnce(&[Value<'b>]) -> Vec<Value<'b>>,
        max_iterations: i64,
    ) -> Vec<Value<'b>> {
        let types = self.types_or_any(state);
        let test = self.body(types.clone(), |state| vec![condition(state)]);
        let next = self.body(types, body);
        let mut attributes = Attributes::default();
        let captured = self.graph.borrow().captured(&[&test, &next]);
        for (name, body, state) in [("condition", &test, false), ("body", &next, true)] {
            attributes.set(name, &self.graph.borrow_mut().function(body, &captured, state));
        }
        attributes.set("max_iterations", &max_iterations);
        let count = state.len() + captured.len();
        let mut found = self.control("while", state, &captured, &attributes, count);
        found.truncate(state.len());
        found
    }

    /// Go through the first axis of sequences: `body(carries, elements)` gives the next carries,
    /// then what is stacked. Returns the last carries and the stacks.
    pub fn scan<'b>(
        &'b self,
        carries: &[Value<'b>],
        sequences: &[Value<'b>],
        reverse: bool,
        body: impl FnOnce(&[Value<'b>], &[Value<'b>]) -> Vec<Value<'b>>,
    ) -> Vec<Value<'b>> {
        let mut types = self.types_or_any(carries);
        types.extend(self.types_or_any(sequences).into_iter().map(|of| {
            // No dimension has a comma.
            let rest = of.shape.split_once(", ").map_or("]", |(_, rest)| rest);
            Type { shape: format!("[{rest}"), dtype: of.dtype }
        }));
        let step = self.body(types, |inputs| {
            let (carries, elements) = inputs.split_at(carries.len());
            body(carries, elements)
        });
        let mut attributes = Attributes::default();
        let captured = self.graph.borrow().captured(&[&step]);
        attributes.set("body", &self.graph.borrow_mut().function(&step, &captured, false));
        attributes.set("carries", &carries.len());
        attributes.set("sequences", &sequences.len());
        attributes.set("reverse", &reverse);
        let inputs = [carries, sequences].concat();
        self.control("scan", &inputs, &captured, &attributes, step.outputs.len())
    }

    /// Make a value the program's next output.
    pub fn output(&self, name: &str, value: Value<'_>) {
        let id = self.own(&value);
        self.know(&[id]);
        let done = self.graph.borrow_mut().output(name, id);
        self.recorded(done);
    }

    /// The program as JSON: what `cow_mlx_program_create` takes.
    ///
    /// # Errors
    /// The first thing that was wrong, or that the program has no output.
    pub fn json(&self) -> Result<String> {
        let graph = self.graph.borrow();
        match &graph.error {
            Some(error) => Err(error.clone()),
            None => graph.json().map_err(conflict),
        }
    }

    /// Make the program.
    ///
    /// # Errors
    /// The first thing that was wrong; else as the manual says of `cow_mlx_program_create`.
    pub fn build(&self) -> Result<Program<'r>> {
        Program::new(self.runtime.clone(), &self.json()?)
    }

    /// Add a node; numbers take the dtype of the last value, before which there are conditions.
    pub(crate) fn emit<'b>(
        &'b self,
        operation: &'static str,
        inputs: &[Operand<'b>],
        attributes: &Attributes,
        results: usize,
    ) -> Vec<Value<'b>> {
        let last = inputs.iter().rev().find_map(|input| match input.0 {
            Given::Value(value) => Some(value),
            _ => None,
        });
        let ids: Vec<_> = inputs
            .iter()
            .map(|input| match &input.0 {
                Given::Value(value) => Some(self.own(value)),
                Given::Number(number) => Some(self.number(number, last)),
                Given::Nothing => None,
            })
            .collect();
        self.node(operation, &ids, attributes.json(), results)
    }

    fn node(
        &self,
        operation: &'static str,
        inputs: &[Option<Id>],
        attributes: String,
        results: usize,
    ) -> Vec<Value<'_>> {
        let given: Vec<Id> = inputs.iter().flatten().copied().collect();
        self.know(&given);
        let made = self.graph.borrow_mut().node(operation, inputs, attributes, results);
        match made {
            Ok(ids) => ids.into_iter().map(|id| self.value(Ok(id))).collect(),
            Err(sentence) => vec![self.value(Err(sentence)); results.min(MAX_RESULTS)],
        }
    }

    fn control<'b>(
        &'b self,
        operation: &'static str,
        inputs: &[Value<'b>],
        captured: &[Id],
        attributes: &Attributes,
        results: usize,
    ) -> Vec<Value<'b>> {
        let given = inputs.iter().map(|value| self.own(value));
        let ids: Vec<_> = given.chain(captured.iter().copied()).map(Some).collect();
        self.node(operation, &ids, attributes.json(), results)
    }

    fn number(&self, number: &Number, beside: Option<Value<'_>>) -> Id {
        let dtype = match beside.map(Value::dtype) {
            Some(Ok(dtype)) => number.beside(dtype),
            Some(Err(error)) => return self.failed(error).id,
            None => number.beside(Dtype::Float32),
        };
        let of = typed(dtype, &Dims::default());
        self.graph.borrow_mut().constant(of, number.json().to_owned())
    }

    /// Write a body, whatever goes wrong in it.
    fn body<'b>(
        &'b self,
        types: Vec<Type>,
        write: impl FnOnce(&[Value<'b>]) -> Vec<Value<'b>>,
    ) -> Body {
        struct Leave<'g>(&'g RefCell<Graph>, usize);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.borrow_mut().leave(self.1);
            }
        }
        let mut body = self.graph.borrow_mut().enter(types);
        let leave = Leave(&self.graph, body.scope);
        let inputs: Vec<_> = body.inputs.iter().map(|&id| self.value(Ok(id))).collect();
        let results: Vec<Id> = write(&inputs).iter().map(|value| self.own(value)).collect();
        self.know(&results);
        let done = self.graph.borrow_mut().results(&mut body, &results);
        self.recorded(done);
        drop(leave);
        body
    }

    /// The types of values; what is not known yet, the library infers.
    pub(crate) fn types(&self, ids: &[Id]) -> Result<Vec<Type>> {
        self.ask_for_captures(ids)?;
        let ids = self.graph.borrow_mut().all_here(ids).map_err(conflict)?;
        let scope = self.graph.borrow().scope();
        self.ask(scope, &ids)?;
        let graph = self.graph.borrow();
        let known = ids.iter().map(|&id| graph.type_of(id).cloned());
        known
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| refused("missing", "a value has no type".into()))
    }

    fn types_or_any(&self, values: &[Value<'_>]) -> Vec<Type> {
        let ids: Vec<Id> = values.iter().map(|value| self.own(value)).collect();
        self.types(&ids).unwrap_or_else(|error| {
            self.failed(error);
            vec![typed(Dtype::Float32, &Dims::default()); ids.len()]
        })
    }

    /// Find out the types of values of scopes around this one, which become inputs of it.
    fn know(&self, ids: &[Id]) {
        if let Err(error) = self.ask_for_captures(ids) {
            self.failed(error);
        }
    }

    fn ask_for_captures(&self, ids: &[Id]) -> Result<()> {
        for &id in ids {
            let unknown = self.graph.borrow().unknown_capture(id);
            if let Some((scope, id)) = unknown {
                self.ask(scope, &[id])?;
            }
        }
        Ok(())
    }

    fn ask(&self, scope: usize, ids: &[Id]) -> Result<()> {
        let Some(question) = self.graph.borrow().question(scope, ids) else {
            return Ok(());
        };
        let info = Program::new(self.runtime.clone(), &question.program)?.info(None)?;
        let answered = self.graph.borrow_mut().answer(&question, &info);
        answered.ok_or_else(|| refused("internal", "the library gives no types".into()))
    }

    /// A value's id; that of another one if the value is of another builder.
    fn own(&self, value: &Value<'_>) -> Id {
        if self.is(value.builder) {
            return value.id;
        }
        self.value(Err("a value is of another program".into())).id
    }

    fn is(&self, other: &ProgramBuilder<'_>) -> bool {
        std::ptr::addr_eq(self, other)
    }

    fn value(&self, made: Refused<Id>) -> Value<'_> {
        match made {
            Ok(id) => Value { builder: self, id },
            Err(sentence) => self.failed(conflict(sentence)),
        }
    }

    fn recorded(&self, done: Refused<()>) {
        if let Err(sentence) = done {
            self.failed(conflict(sentence));
        }
    }

    /// Remember the first error; what stands for the value that there is not.
    fn failed(&self, error: Error) -> Value<'_> {
        let mut graph = self.graph.borrow_mut();
        graph.error.get_or_insert(error);
        let id = graph.constant(typed(Dtype::Float32, &Dims::default()), "0".into());
        Value { builder: self, id }
    }
}

fn conflict(sentence: String) -> Error {
    refused("conflict", sentence)
}

fn refused(reason: &str, sentence: String) -> Error {
    Error::new(Status::InvalidArgument, reason, format!("ProgramBuilder: {sentence}"))
}

fn typed(dtype: Dtype, shape: &Dims) -> Type {
    Type { dtype: dtype.name().into(), shape: shape.to_json() }
}

/// Lists within lists, of as many values as the shape has.
fn nested<T: Element>(values: &[T], shape: &[i64]) -> String {
    let Some((&side, rest)) = shape.split_first() else {
        return values[0].json();
    };
    let side = usize::try_from(side).unwrap_or(0);
    let parts: Vec<&[T]> = values.chunks(values.len() / side.max(1)).collect();
    list(&parts, |part| nested(part, rest))
}

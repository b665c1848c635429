//! What a builder has gathered: values, nodes and functions.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::attributes::{list, quoted};
use crate::error::Error;

/// An index of [`Graph::values`].
pub(crate) type Id = usize;

/// What is known of a value: a dtype's name, and a shape as JSON.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    pub(crate) dtype: String,
    pub(crate) shape: String,
}

#[derive(Debug)]
struct Value {
    scope: usize,
    /// Empty: the builder makes one.
    name: String,
    /// `None`: not known yet.
    of: Option<Type>,
    /// The node of its scope that makes it.
    node: Option<usize>,
}

#[derive(Debug)]
struct Node {
    operation: &'static str,
    inputs: Vec<Option<Id>>,
    attributes: String,
    outputs: Vec<Id>,
}

/// Scope 0 is the program, each other one the body of a function.
#[derive(Debug, Default)]
struct Scope {
    parent: usize,
    declared: Vec<Id>,
    constants: Vec<(Id, String)>,
    /// Constants that are numbers, by dtype and JSON.
    numbers: HashMap<(String, String), Id>,
    nodes: Vec<Node>,
    /// Values of the parent, and as inputs here.
    captures: Vec<(Id, Id)>,
}

/// A function's body, written.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) scope: usize,
    pub(crate) inputs: Vec<Id>,
    pub(crate) outputs: Vec<Id>,
}

/// Nodes and results that the library takes.
pub(crate) const MAX_RESULTS: usize = 50_000;

/// What is wrong: a sentence.
pub(crate) type Refused<T> = Result<T, String>;

/// Graphs within graphs.
#[derive(Debug)]
pub(crate) struct Graph {
    values: Vec<Value>,
    scopes: Vec<Scope>,
    scope: usize,
    inputs: Vec<String>,
    parameters: Vec<String>,
    functions: Vec<String>,
    outputs: Vec<Id>,
    /// The first thing that was wrong.
    pub(crate) error: Option<Error>,
}

impl Graph {
    pub(crate) fn new() -> Self {
        Self {
            values: Vec::new(),
            scopes: vec![Scope::default()],
            scope: 0,
            inputs: Vec::new(),
            parameters: Vec::new(),
            functions: Vec::new(),
            outputs: Vec::new(),
            error: None,
        }
    }

    /// An input, or with `init` a parameter.
    pub(crate) fn declare(&mut self, name: &str, of: Type, init: Option<&str>) -> Refused<Id> {
        self.require_name(name, if init.is_some() { "a parameter" } else { "an input" })?;
        let id = self.add(0, name, Some(of));
        let mut entry = self.declaration(id);
        match init {
            Some("") => self.parameters.push(entry),
            Some(json) => {
                entry.insert_str(entry.len() - 1, &format!(", \"init\": {json}"));
                self.parameters.push(entry);
            }
            None => self.inputs.push(entry),
        }
        self.scopes[0].declared.push(id);
        Ok(id)
    }

    pub(crate) fn constant(&mut self, of: Type, value: String) -> Id {
        let key = (of.shape == "[]").then(|| (of.dtype.clone(), value.clone()));
        let known = key.as_ref().and_then(|key| self.scopes[self.scope].numbers.get(key));
        if let Some(&id) = known {
            return id;
        }
        let id = self.add(self.scope, "", Some(of));
        let scope = &mut self.scopes[self.scope];
        scope.constants.push((id, value));
        if let Some(key) = key {
            scope.numbers.insert(key, id);
        }
        id
    }

    /// Add a node; an input of `None` is left out.
    pub(crate) fn node(
        &mut self,
        operation: &'static str,
        inputs: &[Option<Id>],
        attributes: String,
        results: usize,
    ) -> Refused<Vec<Id>> {
        if results > MAX_RESULTS {
            let wanted = format!("must have at most {MAX_RESULTS}");
            return Err(format!("{operation} has {results} results, {wanted}"));
        }
        let here = |graph: &mut Self, id: &Option<Id>| id.map(|id| graph.here(id)).transpose();
        let inputs =
            inputs.iter().map(|id| here(self, id)).collect::<Refused<Vec<Option<Id>>>>()?;
        let at = self.scopes[self.scope].nodes.len();
        let outputs: Vec<Id> = (0..results).map(|_| self.add(self.scope, "", None)).collect();
        for &id in &outputs {
            self.values[id].node = Some(at);
        }
        let node = Node { operation, inputs, attributes, outputs: outputs.clone() };
        self.scopes[self.scope].nodes.push(node);
        Ok(outputs)
    }

    /// The same value under a name that no other has.
    fn copy(&mut self, id: Id) -> Refused<Id> {
        Ok(self.node("contiguous", &[Some(id)], "{}".into(), 1)?[0])
    }

    /// Give a result of the program its name.
    pub(crate) fn output(&mut self, name: &str, value: Id) -> Refused<()> {
        self.require_name(name, "an output")?;
        let mut value = self.here(value)?;
        if !self.values[value].name.is_empty() || self.is_constant(value) {
            value = self.copy(value)?;
        }
        self.values[value].name = name.into();
        self.outputs.push(value);
        Ok(())
    }

    /// The values as the scope has them.
    pub(crate) fn all_here(&mut self, ids: &[Id]) -> Refused<Vec<Id>> {
        ids.iter().map(|&id| self.here(id)).collect()
    }

    /// The scope that nodes are added to.
    pub(crate) fn scope(&self) -> usize {
        self.scope
    }

    /// What is known of a value.
    pub(crate) fn type_of(&self, id: Id) -> Option<&Type> {
        self.values[id].of.as_ref()
    }

    /// Begin a body whose inputs have these types.
    pub(crate) fn enter(&mut self, types: Vec<Type>) -> Body {
        let scope = self.scopes.len();
        self.scopes.push(Scope { parent: self.scope, ..Scope::default() });
        let inputs: Vec<Id> = types.into_iter().map(|of| self.add(scope, "", Some(of))).collect();
        self.scopes[scope].declared.clone_from(&inputs);
        self.scope = scope;
        Body { scope, inputs, outputs: Vec::new() }
    }

    /// End a body with its results, each under a separate name.
    pub(crate) fn results(&mut self, body: &mut Body, results: &[Id]) -> Refused<()> {
        for &id in results {
            let id = self.here(id)?;
            let taken = body.outputs.contains(&id) || self.is_constant(id);
            let id = if taken { self.copy(id)? } else { id };
            body.outputs.push(id);
        }
        Ok(())
    }

    /// Continue in the scope around a body.
    pub(crate) fn leave(&mut self, scope: usize) {
        self.scope = self.scopes[scope].parent;
    }

    /// What bodies use of the scope around them, each once, in order.
    pub(crate) fn captured(&self, bodies: &[&Body]) -> Vec<Id> {
        let mut found = Vec::new();
        for (outer, _) in bodies.iter().flat_map(|body| &self.scopes[body.scope].captures) {
            if !found.contains(outer) {
                found.push(*outer);
            }
        }
        found
    }

    /// A function of a body's inputs, then of what is captured, which a state passes on.
    pub(crate) fn function(&mut self, body: &Body, captured: &[Id], state: bool) -> String {
        let (mut inputs, mut outputs) = (body.inputs.clone(), body.outputs.clone());
        for &outer in captured {
            let inner = self.captured_as(body.scope, outer);
            inputs.push(inner);
            if state && outputs.contains(&inner) {
                let copy = self.add(body.scope, "", None);
                let node = Node {
                    operation: "contiguous",
                    inputs: vec![Some(inner)],
                    attributes: "{}".into(),
                    outputs: vec![copy],
                };
                self.scopes[body.scope].nodes.push(node);
                outputs.push(copy);
            } else if state {
                outputs.push(inner);
            }
        }
        let name = format!("%f{}", self.functions.len());
        let inputs = list(&inputs, |&id| self.declaration(id));
        let inside = self.inside(body.scope, &outputs);
        self.functions.push(format!("{{\"name\": \"{name}\", \"inputs\": {inputs}, {inside}}}"));
        name
    }

    pub(crate) fn json(&self) -> Refused<String> {
        if self.outputs.is_empty() {
            return Err("the program has no output".into());
        }
        Ok(format!(
            "{{\"inputs\": {}, \"parameters\": {}, \"functions\": {}, {}}}",
            list(&self.inputs, String::clone),
            list(&self.parameters, String::clone),
            list(&self.functions, String::clone),
            self.inside(0, &self.outputs)
        ))
    }

    /// Names that begin with % are those of values that have none.
    fn require_name(&self, name: &str, kind: &str) -> Refused<()> {
        if self.scope != 0 {
            return Err(format!("{kind} is declared in a body, must be outside of all"));
        }
        if name.is_empty() || name.starts_with('%') {
            let wanted = "must be one that does not begin with %";
            return Err(format!("the name of {kind} is {name:?}, {wanted}"));
        }
        Ok(())
    }

    fn add(&mut self, scope: usize, name: &str, of: Option<Type>) -> Id {
        self.values.push(Value { scope, name: name.into(), of, node: None });
        self.values.len() - 1
    }

    fn is_constant(&self, id: Id) -> bool {
        let constants = &self.scopes[self.values[id].scope].constants;
        constants.iter().any(|(each, _)| *each == id)
    }

    /// The value as this scope has it.
    fn here(&mut self, id: Id) -> Refused<Id> {
        self.within(self.scope, id)
    }

    fn within(&mut self, scope: usize, id: Id) -> Refused<Id> {
        if self.values[id].scope == scope {
            return Ok(id);
        }
        if scope == 0 {
            return Err("a value of a body is used outside of it".into());
        }
        let outer = self.within(self.scopes[scope].parent, id)?;
        Ok(self.captured_as(scope, outer))
    }

    /// The input that a value of the scope around a body is in it.
    fn captured_as(&mut self, scope: usize, outer: Id) -> Id {
        if let Some((_, inner)) = self.scopes[scope].captures.iter().find(|each| each.0 == outer) {
            return *inner;
        }
        let inner = self.add(scope, "", self.values[outer].of.clone());
        self.scopes[scope].captures.push((outer, inner));
        self.scopes[scope].declared.push(inner);
        inner
    }

    fn quoted(&self, id: Id) -> String {
        let name = &self.values[id].name;
        if name.is_empty() { format!("\"%{id}\"") } else { quoted(name) }
    }

    fn declaration(&self, id: Id) -> String {
        let name = self.quoted(id);
        match &self.values[id].of {
            Some(Type { dtype, shape }) => {
                format!("{{\"name\": {name}, \"dtype\": \"{dtype}\", \"shape\": {shape}}}")
            }
            None => format!("{{\"name\": {name}}}"),
        }
    }

    /// What a program or a function has besides what is declared.
    fn inside(&self, scope: usize, outputs: &[Id]) -> String {
        let constants = list(&self.scopes[scope].constants, |(id, value)| {
            let dtype = self.values[*id].of.as_ref().map_or("", |of| of.dtype.as_str());
            let name = self.quoted(*id);
            format!("{{\"name\": {name}, \"dtype\": \"{dtype}\", \"value\": {value}}}")
        });
        let nodes: Vec<&Node> = self.scopes[scope].nodes.iter().collect();
        format!("\"constants\": {constants}, {}", self.computed(&nodes, outputs))
    }

    fn computed(&self, nodes: &[&Node], outputs: &[Id]) -> String {
        let name = |id: &Id| self.quoted(*id);
        let nodes = list(nodes, |node| {
            format!(
                "{{\"outputs\": {}, \"op\": \"{}\", \"inputs\": {}, \"attributes\": {}}}",
                list(&node.outputs, name),
                node.operation,
                list(&node.inputs, |id| id.map_or("null".into(), |id| self.quoted(id))),
                node.attributes
            )
        });
        format!("\"nodes\": {nodes}, \"outputs\": {}", list(outputs, name))
    }
}

/// A program whose types answer a question, and the values that are its outputs.
pub(crate) struct Question {
    pub(crate) program: String,
    results: Vec<Id>,
}

impl Graph {
    /// The program that infers types of values of a scope which are not known yet: of the nodes that
    /// make them.
    pub(crate) fn question(&self, scope: usize, ids: &[Id]) -> Option<Question> {
        if ids.iter().all(|&id| self.values[id].of.is_some()) {
            return None;
        }
        let nodes = &self.scopes[scope].nodes;
        let mut given = self.scopes[0].declared.clone(); // their dimensions have values
        let mut seen: HashSet<Id> = given.iter().copied().collect();
        let (mut needed, mut waiting) = (BTreeSet::new(), ids.to_vec());
        while let Some(id) = waiting.pop() {
            if !seen.insert(id) {
                continue;
            }
            match self.values[id].node {
                Some(node) if self.values[id].of.is_none() => {
                    if needed.insert(node) {
                        waiting.extend(nodes[node].inputs.iter().flatten());
                    }
                }
                _ => given.push(id),
            }
        }
        let makers: Vec<&Node> = needed.into_iter().map(|node| &nodes[node]).collect();
        // All are remembered, if they are not too many.
        let few = makers.len() <= 1000;
        let asked = |node: &&&Node| few || node.outputs.iter().any(|id| ids.contains(id));
        let results: Vec<Id> =
            makers.iter().filter(asked).flat_map(|node| node.outputs.iter().copied()).collect();
        let program = format!(
            "{{\"inputs\": {}, \"functions\": {}, {}}}",
            list(&given, |&id| self.declaration(id)),
            list(&self.functions, String::clone),
            self.computed(&makers, &results)
        );
        Some(Question { program, results })
    }

    /// The question of what a body would capture in its parent, for a value of an outer scope: the
    /// scope that has to answer first, and the value there.
    pub(crate) fn unknown_capture(&self, id: Id) -> Option<(usize, Id)> {
        let mut scope = self.scope;
        let mut crossed = false;
        while self.values[id].scope != scope && scope != 0 {
            scope = self.scopes[scope].parent;
            crossed = true;
        }
        let unknown = self.values[id].scope == scope && self.values[id].of.is_none();
        (crossed && unknown).then_some((scope, id))
    }

    /// Remember what the library says in "outputs" of a program's info, in this order.
    pub(crate) fn answer(&mut self, question: &Question, info: &str) -> Option<()> {
        let mut rest = &info[info.find("\"outputs\": [")?..];
        for &id in &question.results {
            let (_, after) = rest.split_once("\"dtype\": \"")?;
            let (dtype, after) = after.split_once('"')?;
            let (_, after) = after.split_once('[')?;
            let (shape, after) = after.split_once(']')?;
            self.values[id].of = Some(Type { dtype: dtype.into(), shape: format!("[{shape}]") });
            rest = after;
        }
        Some(())
    }
}

//! Types of values, which the library infers: it is asked by a program of the nodes that make them.

use std::collections::{BTreeSet, HashSet};

use super::{Graph, Id, Node, Type};
use crate::attributes::list;

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

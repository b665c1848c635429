//! What a chat gives.

use std::borrow::Cow;
use std::ffi::CStr;
use std::ptr::null;

use crate::error::{Result, check};
use crate::params::GenerationParams;
use crate::records::{Finish, Stats};
use crate::transfer::c_text;
use crate::{callback, sys};

/// What a chat gives, part by part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A part of the answer.
    Text(Cow<'a, str>),
    /// A part of what a thinking model thinks before it.
    Reasoning(Cow<'a, str>),
    /// A whole call of a tool.
    ToolCall {
        /// The tool's name.
        name: Cow<'a, str>,
        /// A JSON object.
        arguments: Cow<'a, str>,
    },
    /// Behind thinking that the budget has cut
    /// ([`GenerationParams::thinking_tokens`](crate::GenerationParams::thinking_tokens)).
    ThinkingCut,
    /// The last event.
    End(Finish),
}

impl<'a> Event<'a> {
    /// An event of the library's, unless its kind is unknown here.
    pub(crate) fn new(
        kind: i32,
        text: Cow<'a, str>,
        name: Cow<'a, str>,
        finish: i32,
    ) -> Option<Self> {
        match kind {
            sys::COW_MLX_EVENT_TEXT => Some(Self::Text(text)),
            sys::COW_MLX_EVENT_REASONING => Some(Self::Reasoning(text)),
            sys::COW_MLX_EVENT_TOOL_CALL => Some(Self::ToolCall { name, arguments: text }),
            sys::COW_MLX_EVENT_THINKING_CUT => Some(Self::ThinkingCut),
            sys::COW_MLX_EVENT_END => {
                Some(Self::End(Finish::from_code(finish).unwrap_or(Finish::Other(finish))))
            }
            _ => None,
        }
    }

    /// The event with copies of its texts, to keep it after the callback.
    pub fn into_owned(self) -> Event<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Text(text) => Event::Text(own(text)),
            Self::Reasoning(text) => Event::Reasoning(own(text)),
            Self::ToolCall { name, arguments } => {
                Event::ToolCall { name: own(name), arguments: own(arguments) }
            }
            Self::ThinkingCut => Event::ThinkingCut,
            Self::End(finish) => Event::End(finish),
        }
    }
}

/// Answer a conversation.
pub(crate) fn chat<F: FnMut(Event<'_>) -> bool>(
    context: sys::cow_mlx_context,
    messages: &str,
    options: Option<&str>,
    params: &GenerationParams<'_>,
    mut on_event: F,
) -> Result<Stats> {
    let options = options.map(|text| c_text("context_chat: options", text)).transpose()?;
    let options = options.as_deref().map_or(null(), CStr::as_ptr);
    let (data, length) = (messages.as_ptr().cast(), messages.len());
    let closure = (&raw mut on_event).cast();
    let mut stats = Stats::raw();
    // SAFETY: texts, struct and closure live until the call returns.
    let chat = |params| unsafe {
        let on_event = Some(callback::on_event::<F> as _);
        let stats = &mut stats;
        sys::cow_mlx_context_chat(context, data, length, params, options, on_event, closure, stats)
    };
    check(params.with_raw("context_chat", chat)?)?;
    Ok(Stats::from_raw(&stats))
}

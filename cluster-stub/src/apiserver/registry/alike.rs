//! Creations of objects that are alike: the replicas of a workload differ in nothing but their names, so what the whole way of
//! a create makes of one is what it makes of the next, but for name, uid and times, as long as everything that was read on the
//! way is as it was. The first ones go the whole way; what came out is kept as a stencil, and used only after a second object
//! went the whole way and came out as the stencil says.
//!
//! Not for objects that somebody outside is asked about (webhooks, policies), that charge a quota or that take from a pool:
//! each plugin and each kind says itself whether it always does the same.

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use cluster_stub_wire::scan;
use rustc_hash::FxHasher;
use serde_json::Value;

use super::context::{RequestContext, format_time};
use super::media::{self, Accept, Encoding, View};
use super::options::FieldValidation;
use super::reads::{Noting, Reads};
use super::response::{self, Response};
use super::{Entry, Registry, meta};
use crate::apiserver::authn::UserInfo;
use crate::apiserver::codec::stencil::{Stencil, name_of};
use crate::apiserver::codec::stored;
use crate::apiserver::resources::OwnText;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;

/// Kinds of creations that are known at a time, and bytes that they take; when it is more, all are forgotten.
const MAX_KNOWN: usize = 1024;
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Longer bodies are not compared with others, bytes.
const MAX_BODY: usize = 16 * 1024;
/// Larger objects are not kept, bytes.
const MAX_SIZE: usize = 64 * 1024;

/// The texts in which objects that are alike differ, in the order in which a stencil takes them.
const NAME: usize = 0;
const UID: usize = 1;
const TIME: usize = 2;
const DRAWN: usize = 3;
const REVISION: usize = 4;
/// The first of the texts that are the kind's own.
const OWN: usize = 5;
/// Most texts of an object.
const MAX_TEXTS: usize = 12;

/// What stands for the texts while a stencil is made: nobody can know it, so it is in no object.
static MARKS: LazyLock<[String; MAX_TEXTS]> =
    LazyLock::new(|| std::array::from_fn(|at| format!("{}-{at:02}", uuid::Uuid::new_v4())));

/// A create that may be one of many.
pub(super) struct Candidate<'a> {
    /// What the request is known by.
    hash: u64,
    entry: &'a Arc<Entry>,
    ctx: &'a RequestContext,
    body: &'a [u8],
    manager: String,
    /// Where texts stand in the body, in this order, and which they are. Without [`NAME`], a name is to be made.
    places: Vec<(usize, Range<usize>)>,
}

/// What the whole way tells of a create besides the object.
pub(super) struct Notes<'a> {
    /// The stored objects for admission.
    pub(super) objects: Noting<'a>,
    admitted: Mutex<Admitted>,
}

#[derive(Default)]
struct Admitted {
    /// Whether all who had a say always do the same.
    is_determined: bool,
    /// A text of the object that was drawn at random.
    drawn: Option<String>,
}

/// What is known of creations that are alike.
#[derive(Default)]
pub(super) struct Known {
    creations: Mutex<Creations>,
    /// Objects that were created by it.
    n_used: AtomicU64,
}

/// By what the requests are known by.
#[derive(Default)]
struct Creations {
    states: HashMap<u64, State>,
    n_bytes: usize,
}

#[derive(Clone)]
enum State {
    /// There was one. Most never see a second.
    Seen,
    /// What came out of one.
    Noted(Arc<Creation>),
    /// What came out of two, as far as they are alike.
    Trusted(Arc<Creation>),
}

/// A create that went the whole way, without what differs.
struct Creation {
    entry: Arc<Entry>,
    namespace: String,
    manager: String,
    user: Arc<UserInfo>,
    validation: FieldValidation,
    /// The body between the texts, and which texts these are.
    between: Box<[Box<[u8]>]>,
    texts: Box<[usize]>,
    name: String,
    /// What a name begins with that the body does not have.
    prefix: String,
    /// What the drawn text begins with.
    drawn: Option<String>,
    reads: Reads,
    stencil: Stencil,
    /// What is answered, for a kind that is stored in another form.
    served: Option<Stencil>,
}

impl<'a> Notes<'a> {
    pub(super) fn new(registry: &'a Registry) -> Notes<'a> {
        Notes { objects: Noting::new(registry), admitted: Mutex::default() }
    }

    /// Notes what admission and the kind say of the object.
    pub(super) fn admitted(&self, is_determined: bool, drawn: Option<String>) {
        *self.admitted.lock().unwrap_or_else(PoisonError::into_inner) = Admitted { is_determined, drawn };
    }
}

impl Registry {
    /// The create as one of many; `None` for one that nothing can be remembered of.
    pub(super) fn candidate<'a>(
        &self,
        ctx: &'a RequestContext,
        entry: &'a Arc<Entry>,
        body: &'a [u8],
        accept: Accept,
    ) -> Option<Candidate<'a>> {
        let strategy = &entry.resource.strategy;
        let plain = strategy.has_replicas() && !strategy.allocates() && entry.resource.custom.is_none();
        if !plain || ctx.options.dry_run || accept.view != View::Object || body.len() > MAX_BODY {
            return None;
        }
        if media::body_encoding(&ctx.headers) != Ok(Encoding::Json) {
            return None;
        }
        // Encoders of Go end a body with a line break.
        let body = scan::without_blanks(body);
        let places = places(body, strategy.own_texts())?;
        let text = |place: &Range<usize>| std::str::from_utf8(&body[place.clone()]).ok();
        for (which, place) in &places {
            let is_taken = match which.checked_sub(OWN) {
                None => strategy.takes_name(text(place)?),
                Some(own) => is_plain(text(place)?) && (strategy.own_texts()[own].takes)(text(place)?),
            };
            if !is_taken {
                return None;
            }
        }
        let manager = ctx.manager();
        // Whoever makes two kinds collide makes one of them go the whole way.
        let mut hasher = FxHasher::default();
        for (which, _) in &places {
            which.hash(&mut hasher);
        }
        between(body, &places).for_each(|piece| piece.hash(&mut hasher));
        (ctx.info.namespace.as_str(), &manager, &ctx.user.name).hash(&mut hasher);
        let hash = hasher.finish();
        Some(Candidate { hash, entry, ctx, body, manager, places })
    }

    /// Creates the object as those before it; `None` when it has to go the whole way.
    pub(super) async fn create_alike(
        &self,
        candidate: &Candidate<'_>,
        accept: Accept,
    ) -> Result<Option<Response>, ApiError> {
        let Some(State::Trusted(creation)) = self.0.alike.get(candidate.hash) else { return Ok(None) };
        if !creation.is_of(candidate) || !creation.reads.are_current(self) {
            return Ok(None);
        }
        let Candidate { ctx, entry, .. } = candidate;
        let name = match candidate.text(NAME) {
            Some(name) => name.to_owned(),
            None => meta::generate_name(&creation.prefix),
        };
        let drawn = creation.drawn.as_deref().map(meta::generate_name).unwrap_or_default();
        let (uid, time) = (cluster_stub_wire::uuid::random(), format_time(ctx.now));
        let mut texts = [""; MAX_TEXTS];
        (texts[NAME], texts[UID], texts[TIME], texts[DRAWN]) = (&name, &uid, &time, &drawn);
        candidate.own_texts(&mut texts);
        let bytes = Bytes::from(creation.stencil.fill(&texts));
        self.tell_admitted(ctx, entry, &ctx.info.namespace, &name);
        let revision = self.insert_encoded(ctx, entry, &ctx.info.namespace, &name, bytes.clone()).await?;
        // A name that is taken is told by the whole way.
        let Some(revision) = revision else { return Ok(None) };
        self.0.alike.n_used.fetch_add(1, Ordering::Relaxed);
        let served = match &creation.served {
            None => stored::splice(&bytes, revision.0),
            Some(served) => {
                let revision = revision.to_string();
                texts[REVISION] = &revision;
                served.fill(&texts).into()
            }
        };
        Ok(Some(response::encoded(201, served, accept)))
    }

    /// Whether it is worth noting what comes out of a create: not of the first of its kind.
    pub(super) fn is_worth_noting(&self, candidate: &Candidate<'_>) -> bool {
        let mut creations = self.0.alike.creations.lock().unwrap_or_else(PoisonError::into_inner);
        if creations.states.contains_key(&candidate.hash) {
            return true;
        }
        creations.put(candidate.hash, State::Seen);
        false
    }

    /// Remembers what came out of a create that went the whole way.
    pub(super) fn remember(&self, candidate: &Candidate<'_>, notes: Notes<'_>, created: &Value) {
        let before = self.0.alike.get(candidate.hash);
        let state = match Creation::of(candidate, notes, created) {
            None => State::Seen,
            Some(creation) => {
                let confirms = match &before {
                    Some(State::Noted(before) | State::Trusted(before)) => {
                        // The same name again would not show what depends on it.
                        before.is_of(candidate) && before.name != creation.name && before.is_cut_like(&creation)
                    }
                    _ => false,
                };
                let creation = Arc::new(creation);
                if confirms { State::Trusted(creation) } else { State::Noted(creation) }
            }
        };
        let mut creations = self.0.alike.creations.lock().unwrap_or_else(PoisonError::into_inner);
        creations.put(candidate.hash, state);
    }
}

impl Known {
    fn get(&self, hash: u64) -> Option<State> {
        self.creations.lock().unwrap_or_else(PoisonError::into_inner).states.get(&hash).cloned()
    }

    #[cfg(test)]
    pub(super) fn n_bytes(&self) -> usize {
        self.creations.lock().unwrap_or_else(PoisonError::into_inner).n_bytes
    }

    #[cfg(test)]
    pub(super) fn n_used(&self) -> u64 {
        self.n_used.load(Ordering::Relaxed)
    }
}

impl Creations {
    fn put(&mut self, hash: u64, state: State) {
        let n_bytes = state.n_bytes();
        if self.states.len() >= MAX_KNOWN || self.n_bytes + n_bytes > MAX_BYTES {
            *self = Creations::default();
        }
        self.n_bytes += n_bytes;
        if let Some(before) = self.states.insert(hash, state) {
            self.n_bytes -= before.n_bytes();
        }
    }
}

impl State {
    /// What is kept of requests and objects.
    fn n_bytes(&self) -> usize {
        match self {
            State::Seen => 0,
            State::Noted(creation) | State::Trusted(creation) => {
                let body: usize = creation.between.iter().map(|piece| piece.len()).sum();
                body + creation.stencil.size() + creation.served.as_ref().map_or(0, Stencil::size)
            }
        }
    }
}

impl Candidate<'_> {
    /// A text in the body.
    fn text(&self, which: usize) -> Option<&str> {
        let (_, place) = self.places.iter().find(|(known, _)| *known == which)?;
        std::str::from_utf8(&self.body[place.clone()]).ok()
    }

    /// Fills in the kind's own texts.
    fn own_texts<'a>(&'a self, texts: &mut [&'a str; MAX_TEXTS]) {
        for (which, place) in self.places.iter().filter(|(which, _)| *which >= OWN) {
            texts[*which] = std::str::from_utf8(&self.body[place.clone()]).unwrap_or_default();
        }
    }
}

/// Where the name and the kind's own texts stand in a body; `None` when one of these is not there, or one has escapes.
fn places(body: &[u8], own: &[OwnText]) -> Option<Vec<(usize, Range<usize>)>> {
    if own.is_empty() {
        return Some(name_of(body).into_iter().map(|place| (NAME, place)).collect());
    }
    let mut ways = vec![("metadata", "name")];
    ways.extend(own.iter().map(|text| (text.section, text.name)));
    let found = scan::texts(body, &ways)?.into_iter().enumerate();
    let which = |at: usize| at.checked_sub(1).map_or(NAME, |own| OWN + own);
    let mut places: Vec<_> = found.map(|(at, place)| Some((which(at), place?))).collect::<Option<_>>()?;
    places.sort_unstable_by_key(|(_, place)| place.start);
    Some(places)
}

/// Whether a text is one that JSON may have between quotes, and not an empty one, which may be left out.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && scan::is_text(text.as_bytes())
}

/// The body between the texts.
fn between<'b>(body: &'b [u8], places: &'b [(usize, Range<usize>)]) -> impl Iterator<Item = &'b [u8]> {
    let starts = std::iter::once(0).chain(places.iter().map(|(_, place)| place.end));
    let ends = places.iter().map(|(_, place)| place.start).chain([body.len()]);
    starts.zip(ends).map(|(start, end)| &body[start..end])
}

impl Creation {
    /// What is to be remembered of a create.
    fn of(candidate: &Candidate<'_>, notes: Notes<'_>, created: &Value) -> Option<Creation> {
        let Candidate { ctx, entry, .. } = candidate;
        let Admitted { is_determined, drawn } = notes.admitted.into_inner().unwrap_or_else(PoisonError::into_inner);
        let reads = notes.objects.reads()?;
        if !is_determined || ctx.has_warnings() {
            return None;
        }
        let name = meta::text(created, "name");
        let prefix = meta::text(created, "generateName");
        // A body whose name was not found where it usually stands has one that is always the same.
        if candidate.text(NAME).map_or(prefix.is_empty(), |stated| stated != name) {
            return None;
        }
        let time = format_time(ctx.now);
        let mut texts = [""; MAX_TEXTS];
        (texts[NAME], texts[UID], texts[TIME]) = (name, meta::text(created, "uid"), &time);
        texts[DRAWN] = drawn.as_deref().unwrap_or_default();
        texts[REVISION] = meta::text(created, "resourceVersion");
        candidate.own_texts(&mut texts);
        let own = entry.resource.strategy.own_texts();
        let marks = MARKS.each_ref().map(String::as_str);
        let marked = marked(created, &texts, own);
        let stencil = Stencil::cut(&entry.encode(&marked), &marks);
        let served = entry.converts.then(|| Stencil::cut(&stored::encode_served(&marked), &marks));
        let fits = stencil.fits(&texts, &entry.encode(created))
            && served.as_ref().is_none_or(|served| served.fits(&texts, &stored::encode_served(created)));
        if !fits || stencil.size() > MAX_SIZE {
            return None;
        }
        let creation = Creation {
            entry: (*entry).clone(),
            namespace: ctx.info.namespace.clone(),
            manager: candidate.manager.clone(),
            user: ctx.user.clone(),
            validation: ctx.options.field_validation,
            between: between(candidate.body, &candidate.places).map(Box::from).collect(),
            texts: candidate.places.iter().map(|(which, _)| *which).collect(),
            name: name.to_owned(),
            prefix: prefix.to_owned(),
            drawn: drawn.map(|mut text| {
                text.truncate(text.len().saturating_sub(meta::RANDOM));
                text
            }),
            reads,
            stencil,
            served,
        };
        Some(creation)
    }

    /// Whether the same came out, but for the texts.
    fn is_cut_like(&self, other: &Creation) -> bool {
        self.stencil == other.stencil && self.served == other.served
    }

    /// Whether a create is alike.
    fn is_of(&self, candidate: &Candidate<'_>) -> bool {
        let Candidate { ctx, entry, body, manager, places, .. } = candidate;
        self.texts.iter().eq(places.iter().map(|(which, _)| which))
            && self.between.iter().map(|piece| &**piece).eq(between(body, places))
            && Arc::ptr_eq(&self.entry, entry)
            && self.namespace == ctx.info.namespace
            && self.manager == *manager
            && self.validation == ctx.options.field_validation
            && (Arc::ptr_eq(&self.user, &ctx.user) || self.user == ctx.user)
    }
}

/// The object with marks in place of what is its own.
fn marked(object: &Value, texts: &[&str; MAX_TEXTS], own: &[OwnText]) -> Value {
    let mut object = object.clone();
    let metadata = object.object_mut("metadata");
    for (key, mark) in [("name", NAME), ("uid", UID), ("creationTimestamp", TIME), ("resourceVersion", REVISION)] {
        metadata.put(key, MARKS[mark].as_str().into());
    }
    for entry in metadata.items_mut("managedFields") {
        if entry.text("time") == texts[TIME] {
            entry.put("time", MARKS[TIME].as_str().into());
        }
    }
    if !texts[DRAWN].is_empty() {
        replace(object.object_mut("spec"), texts[DRAWN], &MARKS[DRAWN]);
    }
    for (text, mark) in own.iter().zip(&MARKS[OWN..]) {
        let section = if text.section.is_empty() { &mut object } else { object.object_mut(text.section) };
        section.put(text.name, mark.as_str().into());
    }
    object
}

/// Replaces a text wherever it is a value.
fn replace(value: &mut Value, text: &str, by: &str) {
    match value {
        Value::String(value) if value == text => by.clone_into(value),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, text, by)),
        Value::Object(members) => members.iter_mut().for_each(|(_, member)| replace(member, text, by)),
        _ => {}
    }
}

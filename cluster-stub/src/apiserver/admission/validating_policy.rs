//! ValidatingAdmissionPolicy: rules in CEL that a request must fulfil, bound to the requests that they are for.
//!
//! Upstream: apiserver v1.36.2 `pkg/admission/plugin/policy/validating/dispatcher.go`, `validator.go`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::attributes::{Conditions, Values, conditions};
use super::matching::{is_exempt, rules_match, selectors_match};
use super::{AdmissionPlugin, AdmissionRequest};
use crate::apiserver::authz::Authorizer;
use crate::apiserver::cel::{EvalError, Program, Value as Cel};
use crate::apiserver::resources::GroupResource;
use crate::apiserver::status::ApiError;
use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::labels::selector_matches;

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: GroupResource = GroupResource::of(GROUP, "validatingadmissionpolicies");
const BINDINGS: GroupResource = GroupResource::of(GROUP, "validatingadmissionpolicybindings");
/// Longest message that an expression may make, bytes.
const MAX_MESSAGE: usize = 5 * 1024;

/// Holds requests against the policies that are bound to them.
#[derive(Debug)]
pub(super) struct ValidatingAdmissionPolicy {
    authorizer: Arc<dyn Authorizer>,
}

/// A rule that a request broke, or that could not be evaluated.
struct Denial {
    policy: String,
    /// Empty when the policy itself is broken.
    binding: String,
    message: String,
    reason: String,
}

impl ValidatingAdmissionPolicy {
    /// A check whose expressions may ask `authorizer`.
    pub(super) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        ValidatingAdmissionPolicy { authorizer }
    }

    fn check(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let bindings = request.objects.list(&BINDINGS, None);
        if bindings.is_empty() || is_exempt(request) {
            return Ok(());
        }
        let mut values: Option<Values> = None;
        let mut denials: Vec<Denial> = Vec::new();
        for policy in request.objects.list(&POLICIES, None) {
            let spec = policy.at("spec");
            let name = policy.at("metadata").text("name");
            if !definition_matches(spec.at("matchConstraints"), request)? {
                continue;
            }
            for binding in bindings.iter().filter(|binding| binding.at("spec").text("policyName") == name) {
                let resources = binding.at("spec").at("matchResources");
                if !resources.is_null() && !definition_matches(resources, request)? {
                    continue;
                }
                let values = values.get_or_insert_with(|| Values::of(request, &self.authorizer));
                let mut broken = Vec::new();
                match params(spec, binding.at("spec"), request) {
                    Ok(all) => {
                        for one in all {
                            values.params = one;
                            evaluate(spec, values, &mut broken);
                        }
                    }
                    Err(why) if spec.text("failurePolicy") != "Ignore" => {
                        broken.push((format!("failed to configure binding: {why}"), "Invalid".to_owned()));
                    }
                    Err(_) => {}
                }
                let actions = binding.at("spec").texts("validationActions");
                for (message, reason) in broken {
                    let binding = binding.at("metadata").text("name").to_owned();
                    if actions.contains(&"Warn") {
                        request.warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{binding}': {message}"
                        ));
                    }
                    if actions.contains(&"Deny") {
                        denials.push(Denial { policy: name.to_owned(), binding, message, reason });
                    }
                }
            }
        }
        match denials.into_iter().next() {
            None => Ok(()),
            Some(Denial { policy, binding, message, reason }) => {
                let text =
                    format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}");
                Err(ApiError::denied(request.qualified(), &request.display_name(), &reason, &text))
            }
        }
    }
}

impl AdmissionPlugin for ValidatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn is_determined(&self, request: &AdmissionRequest<'_>) -> bool {
        request.objects.list(&BINDINGS, None).is_empty()
    }

    fn validate<'a>(&'a self, request: &'a mut AdmissionRequest<'_>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(self.check(request)))
    }
}

/// Whether `matchConstraints` or `matchResources` select the request.
pub(super) fn definition_matches(resources: &Value, request: &AdmissionRequest<'_>) -> Result<bool, ApiError> {
    let rules = resources.items("resourceRules");
    if !rules.is_empty() && !rules_match(rules, request) {
        return Ok(false);
    }
    if rules_match(resources.items("excludeResourceRules"), request) {
        return Ok(false);
    }
    selectors_match(resources, request)
}

/// The parameters that a binding names: one `null` when the policy has none.
///
/// Upstream: `pkg/admission/plugin/policy/generic/policy_matcher.go` CollectParams.
pub(super) fn params(spec: &Value, binding: &Value, request: &AdmissionRequest<'_>) -> Result<Vec<Cel>, String> {
    let (kind, reference) = (spec.at("paramKind"), binding.at("paramRef"));
    if kind.is_null() || reference.is_null() {
        return Ok(vec![Cel::Null]);
    }
    let (api_version, kind) = (kind.text("apiVersion"), kind.text("kind"));
    let (resource, namespaced) = request
        .objects
        .resource_of_kind(api_version, kind)
        .ok_or_else(|| format!("failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'"))?;
    let namespace = match (namespaced, reference.text("namespace")) {
        (false, "") => "",
        (false, _) => return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned()),
        (true, "") if request.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()
            );
        }
        (true, "") => request.namespace,
        (true, given) => given,
    };
    let found: Vec<Arc<Value>> = match reference.text("name") {
        "" => {
            let within = namespaced.then_some(namespace);
            let selector = reference.at("selector");
            let mut all = request.objects.list(&resource, within);
            all.retain(|object| selector_matches(selector, object.at("metadata").at("labels")));
            all
        }
        name => request.objects.get(&resource, namespace, name).into_iter().collect(),
    };
    if !found.is_empty() {
        return Ok(found.iter().map(|object| Cel::of_json(object)).collect());
    }
    match reference.text("parameterNotFoundAction") {
        "Allow" => Ok(Vec::new()),
        _ => Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()),
    }
}

/// Evaluates the validations of a policy; gives message and reason of each that is broken.
fn evaluate(spec: &Value, values: &Values, broken: &mut Vec<(String, String)>) {
    let fails = spec.text("failurePolicy") != "Ignore";
    match conditions(spec.items("matchConditions"), values) {
        Conditions::Match => {}
        Conditions::Miss => return,
        Conditions::Failed(why) => {
            broken.extend(fails.then(|| (why, "Invalid".to_owned())));
            return;
        }
    }
    let variables = Variables::of(spec, values);
    for validation in spec.items("validations") {
        match variables.run(validation.text("expression")) {
            Ok(Cel::Bool(true)) => {}
            Ok(_) => {
                let reason = match validation.text("reason") {
                    "" => "Invalid",
                    reason => reason,
                };
                broken.push((message_of(validation, &variables), reason.to_owned()));
            }
            Err(why) => broken.extend(fails.then(|| (why, "Invalid".to_owned()))),
        }
    }
}

/// What a broken validation says: what its expression makes, else what is written, else the rule itself.
fn message_of(validation: &Value, variables: &Variables<'_>) -> String {
    let fits = |text: &String| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
    let made = match validation.text("messageExpression") {
        "" => None,
        expression => match variables.run(expression) {
            Ok(Cel::String(text)) => Some(text.trim().to_owned()).filter(fits),
            _ => None,
        },
    };
    let written = Some(validation.text("message").trim().to_owned()).filter(|text| !text.is_empty());
    made.or(written).unwrap_or_else(|| format!("failed expression: {}", validation.text("expression").trim()))
}

/// The variables of a policy: evaluated when first used, once for each request.
pub(super) struct Variables<'a> {
    spec: &'a Value,
    values: &'a Values,
    known: RefCell<HashMap<String, Result<Cel, EvalError>>>,
}

impl<'a> Variables<'a> {
    pub(super) fn of(spec: &'a Value, values: &'a Values) -> Variables<'a> {
        Variables { spec, values, known: RefCell::default() }
    }

    /// Evaluates an expression of the policy.
    pub(super) fn run(&self, expression: &str) -> Result<Cel, String> {
        let program = Program::compile(expression).map_err(|error| format!("compilation failed: {error}"))?;
        self.evaluate(&program).map_err(|error| format!("expression '{expression}' resulted in error: {error}"))
    }

    fn evaluate(&self, program: &Program) -> Result<Cel, EvalError> {
        // Only the variables that the expression can reach are worked out.
        let variables = self.spec.items("variables");
        let wanted: Vec<&Value> =
            variables.iter().filter(|variable| program.source().contains(variable.text("name"))).collect();
        let mut map = Vec::new();
        for variable in wanted {
            let name = variable.text("name");
            if let Ok(value) = self.variable(name, variable.text("expression")) {
                map.push((name.to_owned(), value));
            }
        }
        let map = Cel::map(map);
        program.evaluate(&|name| match name {
            "variables" => Some(Ok(map.clone())),
            other => self.values.get(other),
        })
    }

    fn variable(&self, name: &str, expression: &str) -> Result<Cel, EvalError> {
        if let Some(known) = self.known.borrow().get(name) {
            return known.clone();
        }
        // A variable that uses itself finds this.
        let circle = EvalError::new(format!("variable {name} refers to itself"));
        self.known.borrow_mut().insert(name.to_owned(), Err(circle));
        let value = Program::compile(expression)
            .map_err(|error| EvalError::new(error.to_string()))
            .and_then(|program| self.evaluate(&program));
        self.known.borrow_mut().insert(name.to_owned(), value.clone());
        value
    }
}

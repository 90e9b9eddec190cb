//! Expressions with their values, types and faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::{EvalError, ObjectType, Program, Type, Value};

fn object() -> Value {
    Value::of_json(&json!({
        "name": "web", "replicas": 3, "ratio": 0.5, "labels": {"app": "web", "tier": "front"},
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}], "tags": ["b", "a"], "nothing": null,
    }))
}

fn evaluate(source: &str) -> Result<Value, EvalError> {
    let program = Program::compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    program.evaluate(&|name| (name == "object").then(|| Ok(object())))
}

#[test]
fn expressions_have_the_values_of_the_language() {
    let cases = [
        "1 + 2 * 3 == 7",
        "7 / 2 == 3 && 7 % 2 == 1 && -7 / 2 == -3",
        "1.5 + 0.5 == 2.0",
        "'a' + 'b' == 'ab' && [1] + [2] == [1, 2]",
        "1 == 1.0 && 1u == 1",
        "object.replicas > 2 && object.replicas <= 3",
        "2 in [1, 2] && 'app' in object.labels && !('x' in object.labels)",
        "has(object.labels.app) && !has(object.labels.x)",
        "object.labels['app'] == object.name",
        "object.ports.all(p, p.port > 0)",
        "object.ports.exists(p, p.name == 'http')",
        "object.ports.exists_one(p, p.port == 80)",
        "object.ports.filter(p, p.port > 100).size() == 1",
        "object.ports.map(p, p.name) == ['http', 'https']",
        "object.ports.map(p, p.port > 100, p.name) == ['https']",
        "object.labels.all(k, k.size() > 2)",
        "[1, 2].transformList(i, v, i + v) == [1, 3]",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "object.name.startsWith('w') && object.name.matches('^w.b$')",
        "size('é') == 1 && size(b'é') == 2",
        "true || object.missing == 1",
        "object.missing == 1 || true",
        "!(false && object.missing == 1)",
        "object.replicas == 3 ? true : object.missing",
        "string(3) == '3' && int('4') == 4 && double('1.5') == 1.5 && string(true) == 'true'",
        "type(1) == int && type('') == string && type([]) == list",
        "object.nothing == null",
        "duration('1h') == duration('60m') && duration('90s').getMinutes() == 1",
        "timestamp('2024-02-01T00:00:00Z') - timestamp('2024-01-31T00:00:00Z') == duration('24h')",
        "timestamp('2024-02-01T00:00:00Z').getMonth() == 1",
        "'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b'",
        "'hello'.substring(1, 3) == 'el' && 'hello'.indexOf('l') == 2 && 'ABC'.lowerAscii() == 'abc'",
        "'%s has %d'.format(['x', 2]) == 'x has 2' && '%.2f'.format([1.5]) == '1.50'",
        "'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1'.find('[0-9]') == '1'",
        "[3, 1].max() == 3 && [1, 2].sum() == 3 && [1, 2].isSorted() && !object.tags.isSorted()",
        "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('500m').add(quantity('0.5')).compareTo(quantity('1')) == 0",
        "isQuantity('1Gi') && !isQuantity('1Q')",
        "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3') && !isIP('10.0.0.300')",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
        "url('https://h:8080/p?a=1').getHostname() == 'h' && url('https://h/p?a=1').getQuery()['a'] == ['1']",
        "object.?labels.?x.orValue('none') == 'none' && object.?labels.?app.orValue('none') == 'web'",
        "object.labels[?'app'].hasValue() && !object.labels[?'x'].hasValue()",
        "optional.of(1).optMap(v, v + 1).value() == 2 && optional.none().optMap(v, v + 1).orValue(0) == 0",
        "cel.bind(n, object.replicas, n * n) == 9",
        "{'a': 1}.a == 1 && {1: 'x'}[1] == 'x'",
        "Object{spec: Object.spec{replicas: 1}}.spec.replicas == 1",
        "dyn(1) == 1 && type(dyn('a')) == string",
    ];
    for source in cases {
        assert_eq!(evaluate(source), Ok(Value::Bool(true)), "{source}");
    }
}

#[test]
fn evaluation_fails_in_known_words() {
    let cases = [
        ("object.missing", "no such key: missing"),
        ("object.labels['x']", "no such key: x"),
        ("object.tags[5]", "index out of bounds: 5"),
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "return error for overflow: integer overflow"),
        ("1 + 'a'", "no such overload: _+_(int, string)"),
        ("nobody", "no such attribute(s): nobody"),
        ("[1, 2].all(x, x / 0 > 1)", "division by zero"),
        ("optional.none().value()", "optional.none() dereference"),
    ];
    for (source, want) in cases {
        assert_eq!(evaluate(source).map_err(|error| error.to_string()), Err(want.to_owned()), "{source}");
    }
}

#[test]
fn endless_work_is_cut_off() {
    let list = format!("[{}]", vec!["1"; 200].join(","));
    let source = format!("{list}.all(a, {list}.all(b, {list}.all(c, {list}.all(d, a + b + c + d > 0))))");
    let error = evaluate(&source).expect_err("too much");
    assert_eq!(error.to_string(), "operation cancelled: actual cost limit exceeded");
}

fn typed(name: &str) -> Option<Type> {
    let fields = [
        ("name", Type::String),
        ("replicas", Type::Int),
        ("tags", Type::List(Box::new(Type::String))),
        ("labels", Type::Map(Box::new(Type::String))),
        ("free", Type::Dyn),
    ];
    let fields: BTreeMap<String, Type> = fields.map(|(name, ty)| (name.to_owned(), ty)).into();
    (name == "self").then(|| Type::Object(Arc::new(ObjectType { name: "object".to_owned(), fields })))
}

#[test]
fn what_cannot_be_right_is_found_before_evaluation() {
    let cases = [
        ("self.nope > 1", "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope > 1\n | ....^"),
        ("other.x", "ERROR: <input>:1:1: undeclared reference to 'other' (in container '')\n | other.x\n | ^"),
        (
            "self.replicas == 'x'",
            "ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(int, string)'\n | self.replicas == 'x'\n | ..............^",
        ),
        (
            "self.replicas.startsWith('a')",
            "ERROR: <input>:1:25: found no matching overload for 'startsWith' applied to 'int.(string)'\n | self.replicas.startsWith('a')\n | ........................^",
        ),
        (
            "nofunction(1)",
            "ERROR: <input>:1:11: undeclared reference to 'nofunction' (in container '')\n | nofunction(1)\n | ..........^",
        ),
    ];
    for (source, want) in cases {
        let error = Program::compile_typed(source, &typed).expect_err(source);
        assert_eq!(error.to_string(), want, "{source}");
    }
}

#[test]
fn what_can_be_right_passes_with_its_type() {
    let cases = [
        ("self.replicas > 1", Type::Bool),
        ("self.tags.map(t, t + 'x')", Type::List(Box::new(Type::String))),
        ("self.labels.all(k, self.labels[k].size() > 1)", Type::Bool),
        ("self.free.any.thing == 3", Type::Bool),
        ("has(self.name) ? self.name : ''", Type::String),
        ("self.tags[0]", Type::String),
        ("self.replicas + 1", Type::Int),
        ("self.replicas < 1.5", Type::Bool),
    ];
    for (source, want) in cases {
        let (_, ty) = Program::compile_typed(source, &typed).unwrap_or_else(|error| panic!("{source}: {error}"));
        assert_eq!(ty, want, "{source}");
    }
    let mentions = |source: &str| Program::compile(source).expect(source).mentions("oldSelf");
    assert!(mentions("self == oldSelf") && !mentions("self.oldSelf == 1") && !mentions("[1].all(oldSelf, true)"));
}

"""Parameter values out of JSON: the conversion matrix as data, and the rules about missing and extra members."""

from __future__ import annotations

import math

import pytest

from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.query.check import CheckedQuery
from gitops.database.language.query.params import ParameterCode, ParameterError, coerce_params
from gitops.database.language.schema import compile_schema
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "languages" / "query"
MATRIX = [case for path in sorted(DATA.glob("coercion*.yaml")) for case in read_yaml(path)]


def declaring(params: str) -> CheckedQuery:
    catalog = compile_schema(b"node T { a: String @key }").catalog
    source = f"query q({params}) {{ match {{ $t: T }} return {{ $t }} }}"
    return check_query(parse_queries(source.encode())[0], catalog)


@pytest.mark.parametrize("case", MATRIX, ids=lambda case: f"{case['type']} {case['json']!r}")
def test_conversion_matrix(case: dict[str, object]) -> None:
    query = declaring(f"$p: {case['type']}")
    if "refused" in case:
        with pytest.raises(ParameterError) as refused:
            coerce_params(query.params, {"p": case["json"]})
        error = refused.value
        assert str(case["refused"]) in str(error)
        assert str(error).startswith("param 'p': ")
        assert (error.code, error.parameter) == (ParameterCode(str(case["code"])), "p")
    else:
        value = coerce_params(query.params, {"p": case["json"]})["p"]
        assert value == case["value"]
        assert type(value) is type(case["value"])


def test_a_missing_required_parameter_is_refused_up_front() -> None:
    with pytest.raises(ParameterError, match="parameter 'b' not provided") as refused:
        coerce_params(declaring("$a: String?, $b: I32").params, {"a": "x"})
    assert (refused.value.code, refused.value.parameter) == (ParameterCode.MISSING, "b")


def test_omitted_nullable_parameters_are_null_and_the_order_is_as_declared() -> None:
    values = coerce_params(declaring("$b: I32, $a: String?").params, {"b": 1})
    assert list(values.items()) == [("b", 1), ("a", None)]


def test_undeclared_members_are_ignored() -> None:
    assert coerce_params(declaring("$a: I32").params, {"a": 1, "z": {"deep": [None]}}) == {"a": 1}


@pytest.mark.parametrize("values", [None, {}])
def test_no_parameters(values: object) -> None:
    assert coerce_params(declaring("").params, values) == {}


@pytest.mark.parametrize("values", [[], "x", 1, False])
def test_anything_but_an_object_is_refused(values: object) -> None:
    with pytest.raises(ParameterError, match="params must be a JSON object") as refused:
        coerce_params(declaring("").params, values)
    assert (refused.value.code, refused.value.parameter) == (ParameterCode.NOT_AN_OBJECT, None)


def test_an_integer_too_large_for_a_float_is_out_of_range() -> None:
    with pytest.raises(ParameterError, match="expected float") as refused:
        coerce_params(declaring("$f: F64").params, {"f": 10**400})
    assert refused.value.code is ParameterCode.OUT_OF_RANGE


def test_vector_elements_must_be_finite() -> None:
    with pytest.raises(ParameterError, match="expected float"):
        coerce_params(declaring("$v: Vector(1)").params, {"v": [math.nan]})


def test_refusals_never_repeat_the_value() -> None:
    with pytest.raises(ParameterError) as refused:
        coerce_params(declaring("$n: I32").params, {"n": "hunter2"})
    assert "hunter2" not in str(refused.value)

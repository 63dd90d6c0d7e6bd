//! Reads a Cedar schema as one line of JSON, then pairs of policy sets, one JSON object on each line:
//! `{"before": POLICIES, "after": POLICIES, "actions": [..]}`. For each pair it prints the actions for which the policies after
//! permit a request, of any principal with any groups and with any context, that those before do not, as a line of JSON.

use std::io::{self, BufRead, Write};

use cedar_policy::{PolicySet, Schema};
use cedar_policy_symcc::{solver::LocalSolver, CedarSymCompiler, CompiledPolicySet};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut lines = io::stdin().lock().lines();
    let schema = Schema::from_json_str(&lines.next().ok_or("no schema")??)?;
    let mut compiler = CedarSymCompiler::new(LocalSolver::cvc5()?)?;
    let mut out = io::stdout().lock();
    for line in lines {
        let pair: Value = serde_json::from_str(&line?)?;
        let before = PolicySet::from_json_value(pair["before"].clone())?;
        let after = PolicySet::from_json_value(pair["after"].clone())?;
        let wanted: Vec<&str> = pair["actions"].as_array().ok_or("no actions")?.iter().filter_map(Value::as_str).collect();
        let mut gained = Vec::new();
        for env in schema.request_envs() {
            let action = env.action().id().unescaped().to_string();
            if wanted.contains(&action.as_str()) {
                let old = CompiledPolicySet::compile(&before, &env, &schema)?;
                let new = CompiledPolicySet::compile(&after, &env, &schema)?;
                if !compiler.check_implies_opt(&new, &old).await? {
                    gained.push(action);
                }
            }
        }
        gained.sort();
        writeln!(out, "{}", serde_json::to_string(&gained)?)?;
        out.flush()?;
    }
    Ok(())
}

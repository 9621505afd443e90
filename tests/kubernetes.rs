//! `examples/kubernetes.yaml`: its image, its address, and its commands, which are executed here.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::docs::root;
use crate::support::{Finished, TestDb, leave_out, packages};

/// Reads the documents of the manifest.
fn documents() -> Result<Vec<Value>, String> {
    const TO_JSON: &str = "import json, sys, yaml\n\
                           json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages::python("PyYAML")?);
    python.args(["-c", TO_JSON]).arg(root().join("examples/kubernetes.yaml"));
    let output = python.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_manifest_ticks_and_checks() {
    let documents = match documents() {
        Ok(documents) => documents,
        Err(why) => return leave_out("the manifest of Kubernetes", &why),
    };
    let file = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    let (image, manifest) = (file("packaging/Containerfile"), file("examples/kubernetes.yaml"));
    let name = concat!("jobctl:", env!("CARGO_PKG_VERSION"));
    // The arguments of a container follow the entry point of its image.
    assert!(image.contains("\nENTRYPOINT [\"jobctl\"]\n") && image.contains(name), "{image}");
    assert!(manifest.contains("create secret generic jobctl --from-literal=url="), "{manifest}");
    let secret = json!({ "secretKeyRef": { "name": "jobctl", "key": "url" } });
    let address = json!([{ "name": "DATABASE_URL", "valueFrom": secret }]);

    let db = TestDb::new();
    let init = db.jobctl(["init"]).run().success().stdout;
    // Asserts that a CronJob has the schedule that `init` prints, and the image, user and address
    // of the manifest. Then executes its command.
    let check_and_run = |job: &Value, name: &str, command: &str| -> Finished {
        assert_eq!([&job["apiVersion"], &job["kind"]], ["batch/v1", "CronJob"], "{job}");
        assert_eq!(job["metadata"]["name"], name, "{job}");
        let times = job["spec"]["schedule"].as_str().unwrap();
        let line = init.lines().find(|line| line.contains(&format!("' {command}"))).unwrap();
        assert!(line.starts_with(&format!("{times} '")), "{line}: {times}");
        let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        let user = format!("\nUSER {0}:{0}\n", pod["securityContext"]["runAsUser"]);
        assert!(image.contains(&user), "{user}");
        let [container] = &pod["containers"].as_array().unwrap()[..] else { panic!("{pod}") };
        assert_eq!(container["image"], concat!("jobctl:", env!("CARGO_PKG_VERSION")), "{pod}");
        assert_eq!(container["env"], address, "{pod}");
        let arguments = container["args"].as_array().unwrap().iter();
        let arguments: Vec<_> = arguments.map(|word| word.as_str().unwrap()).collect();
        assert_eq!(arguments[0], command, "{pod}");
        let jobctl = db.jobctl(arguments).env_remove("JOBCTL_DATABASE_URL");
        jobctl.env("DATABASE_URL", &db.url()).run()
    };
    let [tick, check] = &documents[..] else { panic!("{documents:?}") };
    // A problem makes the Job of the check fail: the schema is older than an hour, without a tick.
    let problem = "no worker has ever ticked";
    db.execute("UPDATE jobctl.schema_migrations SET applied_at = applied_at - interval '1 h'");
    check_and_run(check, "jobctl-check", "check").exits(1).stdout_has(problem);
    let id = db.enqueue_script("true");
    check_and_run(tick, "jobctl", "tick").success();
    assert_eq!(db.status(id), "succeeded");
    assert_eq!(db.query("SELECT worker FROM jobctl.job_workers"), "kubernetes");
    check_and_run(check, "jobctl-check", "check").success().stdout("");
}

"""Rules about the run, its variants and its data."""

from __future__ import annotations

from rule_case import Case

FSDP2 = (
    "parallel.fsdp2=true; parallel.tp=1; parallel.text_layers=[80]; parallel.vision_layers=[32]; "
    "platform.env.CUDA_DEVICE_MAX_CONNECTIONS=2; batch.accumulation=1"
)
CANONICAL = "tuning.mode=lora; tuning.lora.canonical=true; tuning.lora.targets=[q_proj]"
STREAMING = (
    "extra.data_json.dataset_param.basic_parameters.streaming=true; "
    "extra.data_json.dataloader_param.sampler_type"
)
WORKERS = "data.loader_workers=0"
B3, B72, OLD = "qwen2.5vl-3b", "qwen2.5vl-72b", "qwen2vl-7b"

RUN = {
    "a global batch is whole": Case(
        "batch.global=30", "30 is not a multiple of micro 1 x DP 4 = 4", "use 28 or 32",
        "batch.global=32",
    ),
    "a global batch holds a micro batch of each": Case(
        "batch.global=7; batch.micro=2", "7 is not a multiple of micro 2 x DP 4 = 8", "use 8",
        "batch.global=8; batch.micro=2",
    ),
    "one batch size": Case(
        "batch.global=96; batch.accumulation=24", "both accumulation and global", "keep one",
        "batch.accumulation=24",
    ),
    "some batch size": Case(
        "batch.accumulation=null", "neither accumulation nor global", "add accumulation or global",
        "batch.accumulation=1",
    ),
    "a micro batch has a sample": Case(
        "batch.micro=0", "batch.micro cannot be 0", "a number greater than 0", "batch.micro=1"
    ),
    "the rate falls": Case(
        "train.min_lr=0.1", "train.min_lr 0.1 is above train.lr", "from 0 to 1e-05",
        "train.min_lr=0.00001",
    ),
    "the rate is positive": Case(
        "train.lr=0", "train.lr cannot be 0", "a number greater than 0", "train.lr=0.0000001"
    ),
    "warmup is a share": Case(
        "train.warmup_fraction=1.1", "train.warmup_fraction cannot be 1.1", "a number up to 1",
        "train.warmup_fraction=1.0",
    ),
    "samples fit the model": Case(
        "train.seq_length=128001; train.recompute=full", "exceeds the model's 128000 positions",
        "use at most 128000", "train.seq_length=2048",
    ),
    "an interval is at least one step": Case(
        "train.save_interval=0", "train.save_interval cannot be 0", "a number greater than 0",
        "train.save_interval=1",
    ),
    "a log is at least every step": Case(
        "train.log_interval=0", "train.log_interval cannot be 0", "a number greater than 0",
        "train.log_interval=1",
    ),
    "an evaluation has a step": Case(
        "train.eval_interval=0", "train.eval_interval cannot be 0", "a number greater than 0",
        "train.eval_interval=1",
    ),
    "frozen parts exist": Case(
        "train.freeze=[visoin]", "cannot be 'visoin'", "did you mean 'vision'",
        "train.freeze=[vision]",
    ),
    "frozen parts are a set": Case(
        "train.freeze=[vision, vision]", "names a part twice", "once", "train.freeze=[projector]"
    ),
    "no selective recompute with adapters": Case(
        "train.recompute=selective; tuning.mode=lora", "train.recompute selective with LoRA",
        "use full or none", "train.recompute=full; tuning.mode=lora",
    ),
    "recompute is known": Case(
        "train.recompute=uniform", "train.recompute cannot be 'uniform'", "use one of",
        "train.recompute=selective",
    ),
    "a step to resume from": Case(
        "resume.iteration=0", "resume.iteration", "a step, latest or null", "resume.iteration=1"
    ),
    "targets exist": Case(
        "tuning.mode=lora; tuning.lora.targets=[linear_porj]", "'linear_porj' is no module",
        "did you mean 'linear_proj'", "tuning.mode=lora; tuning.lora.targets=[linear_proj]",
    ),
    "targets of a canonical model": Case(
        CANONICAL.replace("q_proj", "linear_fc1"), "no module of the canonical model",
        "did you mean 'linear_fc2'", CANONICAL.replace("q_proj", "linear_fc2"),
    ),
    "there is a target": Case(
        "tuning.mode=lora; tuning.lora.targets=[]", "targets is empty", "use linear_qkv",
        "tuning.mode=lora; tuning.lora.targets=[linear_qkv]",
    ),
    "dropout leaves something": Case(
        "tuning.lora.dropout=1.0", "tuning.lora.dropout cannot be 1.0", "a number below 1",
        "tuning.lora.dropout=0.9",
    ),
    "a port is free to users": Case(
        "platform.master_port=80", "platform.master_port cannot be 80", "from 1024 up",
        "platform.master_port=1024",
    ),
    "keys exist": Case(
        "train.sequence_length=2048", "the key train.sequence_length is not known",
        "did you mean 'seq_length'", "train.seq_length=2048",
    ),
}  # fmt: skip

VARIANTS = {
    "releases are known": Case(
        "release=26.2.0", "release '26.2.0' of MindSpeed-MM is not known", "'26.1.0'",
        "release=26.0.0",
    ),
    "the release has the family": Case(
        "release=26.1.0", "26.1.0 has no example of Qwen2-VL", "26.0.0", "release=26.0.0", OLD
    ),
    "the release has canonical models": Case(
        f"{CANONICAL}; release=2.2.0", "2.2.0 has no canonical model", "2.3.0",
        f"{CANONICAL}; release=2.3.0",
    ),
    "the family has canonical models": Case(
        CANONICAL, "Qwen2-VL has no canonical model", "canonical: false", "tuning.mode=lora", OLD
    ),
    "canonical models share no sequence": Case(
        f"{CANONICAL}; parallel.cp=2", "canonical model with context parallel size 2",
        "parallel.cp: 1", f"{CANONICAL}; parallel.cp=1",
    ),
    "the release has fsdp2": Case(
        f"{FSDP2}; release=2.1.0", "2.1.0 has no FSDP2", "2.2.0", f"{FSDP2}; release=2.2.0", B72
    ),
    "fsdp2 cuts no layers": Case(
        f"{FSDP2}; parallel.tp=2", "FSDP2 with TP 2 x PP 1", "use tp: 1", FSDP2, B72
    ),
    "fsdp2 unties": Case(
        f"{FSDP2}; architecture.text.tied=true", "whose head is its embedding",
        "parallel.fsdp2: false", f"{FSDP2}; architecture.text.tied=false", B72,
    ),
    "fsdp2 has no adapters": Case(
        f"{FSDP2}; tuning.mode=lora", "LoRA with FSDP2", "tuning.mode: full",
        f"{FSDP2}; tuning.mode=full", B72,
    ),
    "fsdp2 wants connections": Case(
        f"{FSDP2}; platform.env.CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_DEVICE_MAX_CONNECTIONS is 1",
        "set CUDA_DEVICE_MAX_CONNECTIONS: 2", FSDP2, B72,
    ),
    "megatron wants one connection": Case(
        "platform.env.CUDA_DEVICE_MAX_CONNECTIONS=2", "CUDA_DEVICE_MAX_CONNECTIONS is 2",
        "set CUDA_DEVICE_MAX_CONNECTIONS: 1", "platform.env.CUDA_DEVICE_MAX_CONNECTIONS=1",
    ),
    "the release loads hf weights": Case(
        "hf.online=true; release=2.3.0", "2.3.0 cannot load HF weights", "26.0.0",
        "hf.online=true; release=26.0.0", B3,
    ),
    "hf weights are for one stage": Case(
        "hf.online=true", "hf.online with 2 stages", "lists of one stage", "hf.online=false"
    ),
    "hf weights have no adapters": Case(
        "hf.online=true; tuning.mode=lora", "hf.online with LoRA", "online: false",
        "hf.online=true; tuning.mode=full", B3,
    ),
    "flags exist": Case(
        "extra.flags.--exit-signal-handlers=true", "has no flag --exit-signal-handlers",
        "did you mean '--exit-signal-handler'", "extra.flags.--exit-signal-handler=true",
    ),
    "flags that do nothing": Case(
        "extra.flags.--num-layers=28", "the flag --num-layers has no effect",
        "use the keys of architecture", "extra.flags.--exit-interval=28",
    ),
    "flags take their kind of value": Case(
        "extra.flags.--exit-interval=soon", "--exit-interval cannot be 'soon'", "a whole number",
        "extra.flags.--exit-interval=100",
    ),
    "model.json keys exist": Case(
        "extra.model_json.text_decoder.kv_chanels=128", "has no key kv_chanels",
        "did you mean 'kv_channels'", "extra.model_json.text_decoder.kv_channels=128",
    ),
    "data.json has no cutoff": Case(
        "extra.data_json.dataset_param.basic_parameters.cutoff_len=5", "has no key cutoff_len",
        "use one of", "extra.data_json.dataset_param.basic_parameters.preprocess_on_fly=true",
    ),
    "both lists of an answering model": Case(
        "generate.text_layers=[20, 60]; generate.vision_layers=null",
        "generate names the layers of one part only", "or neither",
        "generate.text_layers=[20, 60]; generate.vision_layers=[32, 0]", B72,
    ),
    "an answering model is whole": Case(
        "generate.text_layers=[20, 61]; generate.vision_layers=[32, 0]", "holds 81 layers",
        "as in [20, 60]", "generate.text_layers=[20, 60]; generate.vision_layers=[32, 0]", B72,
    ),
}  # fmt: skip

DATA = {
    "there is a file": Case(
        "data.files=[]", "data.files is empty", "at least one", "data.files=[a.json]"
    ),
    "files hold no space": Case(
        "data.files=[a b.json]", "has a space or a comma", "rename the file",
        "data.files=[a_b.json]",
    ),
    "pictures have room": Case(
        "data.image_min_pixels=262145", "262145 is above image_max_pixels 262144",
        "use at most 262144", "data.image_min_pixels=262144",
    ),
    "frames have room": Case(
        "data.video_min_pixels=16385", "16385 is above video_max_pixels 16384",
        "use at most 16384", "data.video_min_pixels=16384",
    ),
    "one kind of media": Case(
        "data.media=both", "data.media cannot be 'both'", "use one of", "data.media=none"
    ),
    "rows are read": Case(
        "data.max_samples=0", "data.max_samples cannot be 0", "a number greater than 0",
        "data.max_samples=1",
    ),
    "values mean themselves in a shell": Case(
        "paths.save=$HOME/save", "holds the character '$'", "write the value itself",
        "paths.save=/home/save",
    ),
    "variables have names": Case(
        "platform.env.A-B=1", "cannot be the name of an environment variable", "rename it",
        "platform.env.A_B=1",
    ),
    "a picture fits the sequence": Case(
        "train.seq_length=334", "the largest image takes 334 tokens, train.seq_length is 334",
        "at most 261072 for data.image_max_pixels", "train.seq_length=335", code=1,
    ),
    "a video fits the sequence": Case(
        "data.media=videos; data.video_max_frames=104", "the largest video takes 1040 tokens",
        "at most 14896 for data.video_max_pixels", "data.media=videos; data.video_max_frames=102",
        code=1,
    ),
    "an npu holds its stage": Case(
        "train.seq_length=65536", "it cannot fit", "train.recompute: full",
        "train.seq_length=2048", code=1,
    ),
    "streaming has its sampler": Case(
        f"{STREAMING}=shuffled; {WORKERS}", "streaming with settings",
        "sampler_type: stateful_distributed_sampler",
        f"{STREAMING}=stateful_distributed_sampler; {WORKERS}", code=1,
    ),
    "streaming has no workers": Case(
        f"{STREAMING}=stateful_distributed_sampler", "streaming with settings",
        "set data.loader_workers: 0", f"{STREAMING}=stateful_distributed_sampler; {WORKERS}",
        code=1,
    ),
    "streaming cannot resume": Case(
        f"{STREAMING}=stateful_distributed_sampler; {WORKERS}; resume.iteration=5",
        "streaming with settings", "set resume.iteration: null",
        f"{STREAMING}=stateful_distributed_sampler; {WORKERS}", code=1,
    ),
    "random batches are full": Case(
        "extra.data_json.dataloader_param.drop_last=false", "drop_last is off",
        "leave drop_last out", "extra.data_json.dataloader_param.drop_last=true", code=1,
    ),
}  # fmt: skip
